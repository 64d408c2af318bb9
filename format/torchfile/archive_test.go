package torchfile

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

const checkpoints = "../../testdata/checkpoints/"

func open(t *testing.T, path string) *Archive {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(&tensor.Section{R: f, N: info.Size()}, Options{})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return a
}

// tensors are all tensors of a tree of dicts and lists, in order.
func tensors(v pickle.Value) []*tensor.Tensor {
	var out []*tensor.Tensor
	if d, ok := pickle.AsDict(v); ok {
		for _, p := range d.Pairs {
			out = append(out, tensors(p.Value)...)
		}
	}
	if items, ok := pickle.Sequence(v); ok {
		for _, item := range items {
			out = append(out, tensors(item)...)
		}
	}
	if t, ok := v.(*tensor.Tensor); ok {
		out = append(out, t)
	}
	return out
}

func write(t *testing.T, root pickle.Value) []byte {
	t.Helper()
	f, err := New(root, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := f.WriteTo(&b); err != nil || n != f.Size() || int64(b.Len()) != n {
		t.Fatalf("wrote %d bytes of %d: %v", n, f.Size(), err)
	}
	return b.Bytes()
}

// Every real archive is read, written, and read again with the same tensors;
// archive/zip agrees about what was written.
func TestRealArchivesRoundTrip(t *testing.T) {
	files, err := filepath.Glob(checkpoints + "*/*.pt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d checkpoints found: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			a := open(t, file)
			want := tensors(a.Root())
			written := write(t, a.Root())
			b, err := Open(tensor.Memory(written), Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := tensors(b.Root())
			if len(got) != len(want) || len(want) == 0 {
				t.Fatalf("%d tensors read back, %d written", len(got), len(want))
			}
			for i := range want {
				x, err := want[i].ReadAll()
				if err != nil {
					t.Fatal(err)
				}
				y, err := got[i].ReadAll()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x, y) || want[i].DType != got[i].DType {
					t.Errorf("tensor %d differs", i)
				}
			}
			if err := a.Verify(); err != nil {
				t.Error(err)
			}
			z, err := zip.NewReader(bytes.NewReader(written), int64(len(written)))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range z.File {
				off, err := m.DataOffset()
				if err != nil || off%alignment != 0 {
					t.Errorf("%s starts at %d, not aligned (%v)", m.Name, off, err)
				}
				r, err := m.Open()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := new(bytes.Buffer).ReadFrom(r); err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
			}
		})
	}
}
