package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/heap"
)

// FuzzOpen opens archives: typed errors, memory bounded by what is there, the
// members that archive/zip finds, and a tree that is written and read again the
// same.
func FuzzOpen(f *testing.F) {
	for _, folder := range releases {
		paths, err := filepath.Glob(folder + "*.pt")
		if err != nil || len(paths) < 10 {
			f.Fatal("no seeds", err)
		}
		for _, path := range paths {
			f.Add(read(f, path))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if d := directoryOf(data); d != nil {
			compareWithZip(t, data, d)
		}
		openWithin(t, data)
	})
}

// FuzzTree does the same with sound archives of any pickle, and two storages.
func FuzzTree(f *testing.F) {
	for _, folder := range releases {
		paths, err := filepath.Glob(folder + "*.pt")
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data := read(f, path)
			if d := directoryOf(data); d != nil {
				for i := range d.entries {
					if e := &d.entries[i]; filepath.Base(e.name) == "data.pkl" && e.method == methodStored {
						text, err := e.whole(tensor.Memory(data), nil, 1<<20)
						if err != nil {
							f.Fatal(err)
						}
						f.Add(text, false)
					}
				}
			}
		}
	}
	f.Add([]byte(pickled(f, 6)), true)
	f.Fuzz(func(t *testing.T, text []byte, big bool) {
		order := "little"
		if big {
			order = "big"
		}
		openWithin(t, zipOf(t, file{name: "a/data.pkl", data: string(text)}, file{name: "a/byteorder", data: order}, file{name: "a/version", data: "3\n"},
			file{name: "a/data/0", data: "0123456789abcdef01234567"}, file{name: "a/data/1", data: "01234567"}))
	})
}

// openWithin opens an archive within the memory it may take, and writes and reads
// it again.
func openWithin(t *testing.T, data []byte) {
	var a *Archive
	var err error
	heap.Within(t, allowed(data), func() { a, err = Open(tensor.Memory(data), Options{}) })
	if err == nil {
		all := allTensors(a)
		heap.Within(t, allowed(data), func() { err = readSome(a, all) })
	}
	if err != nil {
		typed(t, err)
		return
	}
	rewrite(t, a)
}

func directoryOf(data []byte) *directory {
	x, _, err := findDirectory(tensor.Memory(data))
	if err != nil {
		return nil
	}
	d, err := readDirectory(tensor.Memory(data), x)
	if err != nil {
		return nil
	}
	return d
}

// allowed is how much memory an archive may take: 64 bytes for each of its
// pickle, 8 for each other, and 1 MiB.
func allowed(data []byte) int64 {
	limit := 8*int64(len(data)) + 1<<20
	d := directoryOf(data)
	if d == nil {
		return limit
	}
	for _, e := range d.entries {
		if filepath.Base(e.name) == "data.pkl" && e.size <= (Options{}).inflate(int64(len(data))) {
			limit += 64 * e.size
		}
	}
	return limit
}

// allTensors are those in lists and dicts.
func allTensors(a *Archive) []*tensor.Tensor {
	var all []*tensor.Tensor
	tree.Walk(a.Root(), func(_ tree.Path, v pickle.Value) bool {
		if x, ok := v.(*tensor.Tensor); ok {
			all = append(all, x)
		}
		return true
	})
	return all
}

// readSome reads the first elements of each tensor, and verifies what was read.
func readSome(a *Archive, all []*tensor.Tensor) error {
	buffer := make([]byte, 1<<12)
	for _, x := range all {
		size := int64(x.DType.Size())
		if err := x.ReadAt(buffer[:min(x.Len(), int64(len(buffer))/size)*size], 0); err != nil {
			return err
		}
	}
	return a.Verify()
}

// compareWithZip compares members with those that archive/zip finds, if it takes
// the archive too and starts from the same end record.
func compareWithZip(t *testing.T, data []byte, d *directory) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return
	}
	if _, at, err := findEnd(tensor.Memory(data)); err != nil || int64(bytes.LastIndex(data, []byte("PK\x05\x06"))) != at {
		return
	}
	budget := new(budget)
	budget.left.Store(1 << 20)
	for _, m := range z.File {
		i, ok := d.byName[m.Name]
		if !ok {
			if m.Name[len(m.Name)-1] != '/' {
				t.Errorf("archive/zip finds a member %q", m.Name)
			}
			continue
		}
		e := &d.entries[i]
		if uint64(e.size) != m.UncompressedSize64 || uint64(e.packed) != m.CompressedSize64 || e.crc != m.CRC32 || e.method != m.Method {
			t.Errorf("%q is %+v, in archive/zip %+v", m.Name, e, m.FileHeader)
		}
		ours, err := e.whole(tensor.Memory(data), budget, 1<<20)
		if err != nil {
			continue
		}
		r, err := m.Open()
		if err != nil {
			continue
		}
		theirs, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(ours, theirs) {
			t.Errorf("%q holds %q, in archive/zip %q", m.Name, ours, theirs)
		}
	}
}

// rewrite writes an archive and reads it again.
func rewrite(t *testing.T, a *Archive) {
	file, err := New(a.Root(), WriteOptions{})
	if err != nil {
		typed(t, err)
		return
	}
	var total int64
	for _, x := range allTensors(a) {
		total += min(x.Bytes(), 1<<30)
	}
	if total > 1<<20 || file.Size() > 1<<20 {
		return // a few bytes, seen as many elements
	}
	d := &dumper{seen: map[any]int{}}
	if err := d.value(a.Root()); err != nil {
		typed(t, err)
		return
	}
	var written bytes.Buffer
	if _, err := file.WriteTo(&written); err != nil {
		typed(t, err)
		return
	}
	again, err := outcome(written.Bytes())
	var f *fault.Error
	switch {
	case errors.As(err, &f) && f.Kind == fault.Resource: // the pickle came out shorter, with less room for what it makes
	case err != nil:
		t.Fatal(err)
	case again != d.String():
		t.Errorf("written and read again it is\n%s\nand was\n%s", again, d.String())
	}
}
