// Package format opens checkpoints: it finds out which container and which form
// a path holds, and where in it the optimizer's state sits.
package format

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/dcp"
	"gefenckpt/format/dense"
	"gefenckpt/format/layout"
	"gefenckpt/format/native"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/fault"
)

// Options steer Open.
type Options struct {
	// Key is where the optimizer's state sits, its parts joined by dots; "" finds
	// it when there is just one.
	Key string
}

// Open opens the checkpoint at path: a torch.save file, a DCP directory, or a
// folder with one of these, or with one file for each rank. Metadata is read,
// state stays on disk. The caller closes the checkpoint.
//
// A checkpoint that a real loader would refuse is returned with its Faults, so
// that it can be inspected, and the first of them as the error. Without a
// checkpoint the error says what the path holds instead.
func Open(path string, o Options) (*checkpoint.Checkpoint, error) {
	c, err := open(path, o)
	if err != nil {
		return nil, fault.Within(err, path, "")
	}
	if len(c.Faults) > 0 {
		return c, c.Faults[0]
	}
	return c, nil
}

func open(path string, o Options) (*checkpoint.Checkpoint, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.New(fault.Incomplete, "there is nothing at this path").WithHint("check the path")
	case err != nil:
		return nil, fault.New(fault.Resource, "%w", err)
	}
	var p *part
	switch {
	case !info.IsDir():
		p, err = openFile(path)
	case isFolder(path):
		return openFolder(path, o)
	default:
		p, err = openDirectory(path)
	}
	if err != nil {
		return nil, err
	}
	if err := p.find(o.Key); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p.read()
}

// part is an open container, and the optimizer's state in it.
type part struct {
	*checkpoint.Checkpoint
	candidate
}

func openFile(path string) (*part, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fault.New(fault.Resource, "%w", err)
	}
	a, err := torchfile.Open(&tensor.Section{R: f, N: info.Size()}, torchfile.Options{})
	if err != nil {
		f.Close()
		return nil, err
	}
	c := &checkpoint.Checkpoint{Path: path, Container: checkpoint.TorchFile, Root: a.Root(), Closer: verifying{f, a}}
	c.SeeVersion("torch.save archive", strconv.Itoa(a.Version))
	for _, note := range a.Notes {
		c.Warn("", "%s", note)
	}
	return &part{Checkpoint: c}, nil
}

// verifying closes a file; Verify completes its checksums.
type verifying struct {
	io.Closer
	*torchfile.Archive
}

func openDirectory(path string) (*part, error) {
	d, err := dcp.Open(path)
	if err != nil {
		return nil, err
	}
	c := &checkpoint.Checkpoint{Path: path, Container: checkpoint.Directory, Root: d.Root(), Closer: d, Unread: d.Unread, Faults: d.Faults}
	if d.Metadata.Torch != "" {
		c.SeeVersion("DCP metadata", d.Metadata.Torch)
	}
	for _, note := range d.Notes {
		c.Warn("", "%s", note)
	}
	for _, file := range d.Unread {
		c.Warn(file, "nothing refers to this file: it is left over from another save")
	}
	return &part{Checkpoint: c}, nil
}

// find finds the optimizer's state: below key, or anywhere for "".
func (p *part) find(key string) error {
	root := p.Root
	var prefix []string
	if key != "" {
		var err error
		if root, prefix, err = at(p.Root, key); err != nil {
			return err
		}
	}
	found, err := choose(search(root), prefix)
	if err != nil {
		return err
	}
	if found == nil {
		return fault.Within(refuse(root), "", strings.Join(prefix, "."))
	}
	p.candidate = *found
	p.Key = found.key
	return nil
}

// read reads the state that was found.
func (p *part) read() (*checkpoint.Checkpoint, error) {
	err := readAs(p.Checkpoint, p.kind, p.dict)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	describeParams(p.Checkpoint)
	return p.Checkpoint, nil
}

// readAs fills c from a state whose kind is known.
func readAs(c *checkpoint.Checkpoint, k kind, d *pickle.Dict) error {
	switch k {
	case denseState:
		dense.Read(c, d)
		c.World = max(c.World, slotChunks(c))
		return nil
	case hybridState:
		return readHybrid(c, d)
	}
	s, err := layout.Read(d)
	if err != nil {
		return err
	}
	return readState(c, s)
}

// readState fills c from an optimizer's state dict.
func readState(c *checkpoint.Checkpoint, s *layout.State) error {
	if err := refuseFlat(s); err != nil {
		return err
	}
	for _, f := range s.Faults {
		c.FaultErr(f, "")
	}
	switch {
	case compact.Is(s):
		compact.Read(c, s)
	case native.Is(s):
		native.Read(c, s)
	default:
		return refuseOptimizer(s)
	}
	for _, key := range s.Surplus {
		c.Warn(layout.KeyState+"."+key, "no group names this entry: a loader ignores it")
	}
	return nil
}

// slotChunks is the number of chunks of the slots of a dense directory, empty ones
// included: the number of ranks that wrote them. The tensors of the tree have none
// of the empty ones.
func slotChunks(c *checkpoint.Checkpoint) int {
	d, ok := c.Closer.(*dcp.Directory)
	if !ok {
		return 0
	}
	most := 0
	prefix := strings.Join(append(slices.Clone(c.Key), "slot_"), ".")
	for i := range d.Metadata.Items {
		item := &d.Metadata.Items[i]
		if strings.HasPrefix(item.FQN, prefix) && strings.HasSuffix(item.FQN, ".momentum") {
			most = max(most, len(item.Chunks))
		}
	}
	return most
}
