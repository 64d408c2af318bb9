// Package format opens checkpoints: it finds out which container and which form
// a path holds, and where in it the optimizer's state sits.
package format

import (
	"errors"
	"io"
	"os"
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
// directory of torch.save files of which one optimizer is in.
// Metadata is read, state stays on disk. The caller closes the checkpoint.
//
// A checkpoint that a real loader would refuse is returned with its Faults, so
// that it can be inspected, and the first of them as the error. Without a
// checkpoint the error says what the path holds instead.
func Open(path string, o Options) (*checkpoint.Checkpoint, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, err := torchFiles(path); err != nil || len(files) > 0 {
			if err != nil {
				return nil, fault.Within(err, path, "")
			}
			return openFiles(path, files, o)
		}
	}
	c := &checkpoint.Checkpoint{Path: path}
	if err := openContainer(c); err != nil {
		return nil, fault.Within(err, path, "")
	}
	if err := read(c, o.Key); err != nil {
		return nil, errors.Join(fault.Within(err, path, ""), c.Close())
	}
	if len(c.Faults) > 0 {
		return c, c.Faults[0]
	}
	return c, nil
}

func openContainer(c *checkpoint.Checkpoint) error {
	info, err := os.Stat(c.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fault.New(fault.Incomplete, "there is nothing at this path").WithHint("check the path")
	case err != nil:
		return fault.New(fault.Resource, "%w", err)
	case info.IsDir():
		return openDirectory(c)
	}
	f, err := os.Open(c.Path)
	if err != nil {
		return fault.New(fault.Resource, "%w", err)
	}
	a, err := torchfile.Open(&tensor.Section{R: f, N: info.Size()}, torchfile.Options{})
	if err != nil {
		f.Close()
		return err
	}
	c.Container, c.Root, c.Closer = checkpoint.TorchFile, a.Root(), verifying{f, a}
	for _, note := range a.Notes {
		c.Warn("", "%s", note)
	}
	return nil
}

// verifying closes a file; Verify completes its checksums.
type verifying struct {
	io.Closer
	*torchfile.Archive
}

func openDirectory(c *checkpoint.Checkpoint) error {
	d, err := dcp.Open(c.Path)
	if err != nil {
		return err
	}
	c.Container, c.Root, c.Closer, c.Unread = checkpoint.Directory, d.Root(), d, d.Unread
	c.Faults = append(c.Faults, d.Faults...)
	for _, note := range d.Notes {
		c.Warn("", "%s", note)
	}
	for _, file := range d.Unread {
		c.Warn(file, "nothing refers to this file: it is left over from another save")
	}
	return nil
}

// read finds the optimizer's state and reads its form.
func read(c *checkpoint.Checkpoint, key string) error {
	found := search(c.Root)
	if key != "" {
		node, err := at(c.Root, key)
		if err != nil {
			return err
		}
		kind, d := classify(node)
		if kind == nothing {
			return fault.New(fault.Unsupported, "%s", describe(node)).In(key)
		}
		found = []candidate{{strings.Split(key, "."), kind, d}}
	}
	switch len(found) {
	case 0:
		return refuse(c.Root)
	case 1:
	default:
		keys := make([]string, len(found))
		for i, f := range found {
			keys[i] = strings.Join(f.key, ".")
		}
		return fault.New(fault.Usage, "the checkpoint holds %d optimizers, under %s", len(found), strings.Join(keys, ", ")).
			WithHint("choose one with --key %s", keys[0])
	}
	c.Key = found[0].key
	return readAs(c, found[0].kind, found[0].dict)
}

// readAs fills c from a state whose kind is known.
func readAs(c *checkpoint.Checkpoint, k kind, d *pickle.Dict) error {
	switch k {
	case denseState:
		dense.Read(c, d)
		return nil
	case hybridState:
		return readHybrid(c, d)
	}
	s, err := layout.Read(d)
	if err != nil {
		return err
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
