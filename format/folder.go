package format

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// suffixes are those of torch.save files.
var suffixes = []string{".pt", ".pth", ".bin"}

// isFolder says whether a directory is no DCP directory, but has torch.save files
// or DCP directories in it: what accelerate and the Transformers Trainer leave,
// and savers that write one file for each rank.
func isFolder(dir string) bool {
	inside, err := contents(dir)
	return err == nil && len(inside) > 0
}

// contents are the names of the torch.save files and DCP directories in dir; none
// where dir itself is a DCP directory, or was to become one.
func contents(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err)
	}
	var inside []string
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasSuffix(name, ".metadata") || strings.HasSuffix(name, ".distcp") || name == ".metadata.tmp":
			return nil, nil
		case e.IsDir():
			if _, err := os.Stat(filepath.Join(dir, name, ".metadata")); err == nil {
				inside = append(inside, name)
			}
		case slices.Contains(suffixes, strings.ToLower(filepath.Ext(name))):
			inside = append(inside, name)
		}
	}
	return inside, nil
}

// openFolder opens the one optimizer in a folder. Several files may hold it, each
// saved by one rank.
func openFolder(dir string, o Options) (*checkpoint.Checkpoint, error) {
	inside, err := contents(dir)
	if err != nil {
		return nil, err
	}
	f := folder{dir: dir}
	for _, name := range inside {
		if err := f.add(name, o.Key); err != nil {
			return nil, errors.Join(err, f.closeAll())
		}
	}
	if len(f.parts) == 0 {
		return nil, fault.New(fault.Unsupported, "nothing in this folder holds an optimizer of Gefen: %s", strings.Join(inside[:min(len(inside), 8)], ", ")).
			WithHint("give the file that does, or a DCP directory")
	}
	first := f.parts[0]
	for _, name := range f.others {
		first.Warn(name, "it holds no optimizer of Gefen, and is left where it is")
	}
	if len(f.parts) == 1 {
		return first.read()
	}
	if err := f.merge(); err != nil {
		return nil, errors.Join(err, f.closeAll())
	}
	return first.Checkpoint, nil
}

// folder is a folder while it is opened.
type folder struct {
	dir    string
	parts  []*part
	others []string // what holds no optimizer of Gefen
}

// add opens one file or directory of the folder, and keeps it if it holds an
// optimizer of Gefen.
func (f *folder) add(name, key string) error {
	path := filepath.Join(f.dir, name)
	open := openFile
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		open = openDirectory
	}
	p, err := open(path)
	if err == nil {
		if err = p.find(key); err == nil && p.isGefen() {
			f.parts = append(f.parts, p)
			return nil
		}
		err = errors.Join(err, p.Close())
	}
	if err != nil && fault.KindOf(err) != fault.Unsupported && !(key != "" && fault.KindOf(err) == fault.Usage) {
		return fault.Within(err, path, "")
	}
	f.others = append(f.others, name)
	return nil
}

func (f *folder) closeAll() error {
	var errs []error
	for _, p := range f.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// merge makes the first part hold what the files of all ranks do: rank-local
// payloads are put together, and what several files hold must be equal.
func (f *folder) merge() error {
	names := make([]string, len(f.parts))
	for i, p := range f.parts {
		names[i] = filepath.Base(p.Path)
	}
	first := f.parts[0]
	for _, p := range f.parts {
		if p.Container != checkpoint.TorchFile || p.kind != first.kind || !slices.Equal(p.key, first.key) {
			return fault.New(fault.Usage, "the folder holds %d checkpoints: %s", len(names), strings.Join(names[:min(len(names), 16)], ", ")).
				WithHint("give one of them")
		}
	}
	closers := closers{}
	for _, p := range f.parts {
		closers = append(closers, p.Closer)
	}
	faults, err := f.combine()
	if err != nil {
		return err
	}
	if _, err := first.read(); err != nil {
		return err
	}
	if len(first.Faults) == 0 { // else the ranks' files may well differ
		for _, e := range faults {
			first.FaultErr(e, "")
		}
	}
	first.Closer = closers
	return nil
}

// combine compares the parts, and gathers the payloads of all in the first.
func (f *folder) combine() ([]error, error) {
	first := f.parts[0]
	if first.kind != optimizer {
		return f.allEqual()
	}
	base, err := layout.Read(first.dict)
	if err != nil {
		return nil, err
	}
	if !compact.Is(base) {
		return f.allEqual()
	}
	var faults []error
	for _, p := range f.parts[1:] {
		s, err := layout.Read(p.dict)
		if err != nil {
			return nil, fault.Within(err, p.Path, "")
		}
		g := gathering{base: base, s: s, first: first.Path, path: p.Path}
		more, err := g.gather()
		if err != nil {
			return nil, err
		}
		faults = append(faults, more...)
		if g.took {
			first.Path = f.dir
		}
	}
	first.dict = base.Build(base.Layout)
	first.Root, err = tree.Replace(first.Root, first.dict, tree.Keys(first.key...)...)
	return faults, err
}

// gathering adds what one rank's file holds to the state of the first.
type gathering struct {
	base, s     *layout.State
	first, path string
	took        bool // some payload was only in this file
}

// another is the fault of a file that is not of the same save.
func (g *gathering) another(item string) error {
	return fault.New(fault.Corrupt, "it holds another state than %s", filepath.Base(g.first)).In(item).File(g.path).
		WithHint("the files are of different saves: keep those of one")
}

func (g *gathering) gather() ([]error, error) {
	var faults []error
	if len(g.base.Entries) != len(g.s.Entries) || len(g.base.Groups) != len(g.s.Groups) {
		return []error{g.another("")}, nil
	}
	for i := range g.base.Groups {
		a, b := &g.base.Groups[i], &g.s.Groups[i]
		equal, err := sameTree(a.Fields, b.Fields)
		if err == nil && equal && a.Metadata != nil && b.Metadata != nil {
			equal, err = sameTree(a.Metadata, b.Metadata)
		}
		if err != nil {
			return nil, err
		}
		if !equal {
			faults = append(faults, g.another(fmt.Sprintf("%s.%d", layout.KeyGroups, i)))
		}
	}
	for i := range g.s.Entries {
		a, b := &g.base.Entries[i], &g.s.Entries[i]
		if a.Fields == nil || b.Fields == nil || a.Key != b.Key {
			faults = append(faults, g.another(layout.KeyState+"."+b.Key))
			continue
		}
		for _, rank := range compact.PayloadRanks(b.Fields) {
			e, err := g.payload(a, b, rank)
			if err != nil {
				return nil, err
			}
			if e != nil {
				faults = append(faults, e)
			}
		}
	}
	return faults, nil
}

// payload takes one rank's payload, or compares it with the one that is there.
func (g *gathering) payload(a, b *layout.Entry, rank int) (differ, err error) {
	key := layout.PayloadKey(rank)
	theirs, _ := b.Fields.Get(key)
	ours, ok := a.Fields.Get(key)
	if !ok {
		a.Fields = &pickle.Dict{Pairs: slices.Clone(a.Fields.Pairs)}
		a.Fields.Delete(layout.MemberKey)
		a.Fields.Set(key, theirs)
		g.took = true
		return nil, nil
	}
	equal, err := sameTree(ours, theirs)
	if err != nil {
		return nil, fault.Within(err, g.path, "")
	}
	if !equal {
		return g.another(fmt.Sprintf("payload of rank %d", rank)), nil
	}
	return nil, nil
}

// allEqual compares the optimizers of all parts with the first's.
func (f *folder) allEqual() ([]error, error) {
	var faults []error
	first := f.parts[0]
	for _, p := range f.parts[1:] {
		equal, err := sameTree(first.dict, p.dict)
		if err != nil {
			return nil, fault.Within(err, p.Path, "")
		}
		if !equal {
			g := gathering{first: first.Path, path: p.Path}
			faults = append(faults, g.another(""))
		}
	}
	return faults, nil
}

// sameTree says whether two trees hold the same data, the elements of tensors
// included.
func sameTree(a, b pickle.Value) (bool, error) {
	path, err := tree.Difference(a, b)
	return path == nil, err
}

// closers closes the files of all ranks.
type closers []io.Closer

// Close closes all.
func (c closers) Close() error {
	var errs []error
	for _, each := range c {
		errs = append(errs, each.Close())
	}
	return errors.Join(errs...)
}
