package dcp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"

	"github.com/klauspost/compress/zstd"
)

// expected is one line of the expected.json that make_directories.py writes.
type expected struct {
	Path  []any
	DType string
	Shape []int64
	Data  string
	Value any
}

// path turns the path of an expectation into steps: JSON has only floats.
func (e *expected) path() tree.Path {
	path := make(tree.Path, len(e.Path))
	for i, step := range e.Path {
		if n, ok := step.(float64); ok {
			path[i] = int64(n)
		} else {
			path[i] = step
		}
	}
	return path
}

// TestReadDirectoriesOfTorch reads what PyTorch 2.6 and 2.15 wrote: one to four
// ranks, shards along either dimension, replicas, empty shards, several files per
// rank, asynchronous and rank-local saves, compressed and safetensors items, every
// dtype and memory layout, old names and protocols.
func TestReadDirectoriesOfTorch(t *testing.T) {
	paths, err := filepath.Glob("testdata/torch-*/*/expected.json")
	if err != nil || len(paths) != 32 {
		t.Fatalf("found %d directories, want 32: %v", len(paths), err)
	}
	for _, path := range paths {
		dir := filepath.Dir(path)
		t.Run(strings.TrimPrefix(filepath.ToSlash(dir), "testdata/"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want []expected
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			d, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if len(d.Faults) != 0 || len(d.Unread) != 0 {
				t.Errorf("faults %v, unread %v", d.Faults, d.Unread)
			}
			for _, e := range want {
				got, err := tree.Get(d.Root(), e.path()...)
				if err != nil {
					t.Errorf("%s: %v", e.path(), err)
					continue
				}
				if e.DType != "" {
					e.check(t, got)
				} else if plain := plainJSON(t, got); !jsonEqual(plain, e.Value) {
					t.Errorf("%s: got %v, want %v", e.path(), plain, e.Value)
				}
			}
			if got := countLeaves(t, d.Root()); got != len(want) && !strings.HasSuffix(dir, "flattening") && !strings.HasSuffix(dir, "unflattened") {
				t.Errorf("%d leaves, want %d", got, len(want))
			}
		})
	}
}

func (e *expected) check(t *testing.T, v pickle.Value) {
	t.Helper()
	got, ok := v.(*tensor.Tensor)
	if !ok || got.DType.String() != e.DType || !slices.Equal(got.Shape, e.Shape) {
		t.Errorf("%s: got %s, want a tensor %s %v", e.path(), tree.Describe(v), e.DType, e.Shape)
		return
	}
	want, err := hex.DecodeString(strings.Replace(e.Data, "zeros", strings.Repeat("00", int(got.Bytes())), 1))
	if err != nil {
		t.Fatal(err)
	}
	if data := contents(t, got); !bytes.Equal(data, want) {
		t.Errorf("%s: got %x, want %x", e.path(), data, want)
	}
}

// contents reads all elements of a tensor.
func contents(t *testing.T, v *tensor.Tensor) []byte {
	t.Helper()
	var data bytes.Buffer
	if _, err := v.Data().WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// plainJSON is a value as make_directories.py puts it into JSON.
func plainJSON(t *testing.T, v pickle.Value) any {
	switch v := v.(type) {
	case pickle.Bytes:
		return map[string]any{"bytes": hex.EncodeToString(v)}
	case *big.Int:
		return map[string]any{"int": v.String()}
	case int64:
		return float64(v)
	case *pickle.Global:
		return map[string]any{"global": v.Module + "." + v.Name}
	case *tensor.Tensor:
		return map[string]any{"tensor": hex.EncodeToString(contents(t, v))}
	}
	if items, ok := pickle.Sequence(v); ok {
		out := make([]any, len(items))
		for i, item := range items {
			out[i] = plainJSON(t, item)
		}
		return out
	}
	return v
}

func jsonEqual(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func countLeaves(t *testing.T, root pickle.Value) int {
	n := 0
	tree.Walk(root, func(_ tree.Path, v pickle.Value) bool {
		switch v.(type) {
		case *tensor.Tensor, *tree.Lazy:
			n++
		}
		return true
	})
	return n
}

func TestNotes(t *testing.T) {
	for _, c := range []struct{ dir, torch, note string }{
		{"torch-2.6/tree", "2.4 to 2.6", "1 positions of lists have no item"},
		{"torch-2.6/old-names", "2.1 or 2.2", ""},
		{"torch-2.15/small", "2.15 or newer", ""},
		{"torch-2.15/protocol-2", "2.9 to 2.14", ""},
		{"torch-2.15/unflattened", "2.15 or newer", "no path for 2 items"},
		{"torch-2.15/rank-local-2", "2.15 or newer", "those of ranks 0 and 1 were joined"},
	} {
		t.Run(c.dir, func(t *testing.T) {
			d, err := Open("testdata/" + c.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Metadata.Torch != c.torch {
				t.Errorf("written by torch %q, want %q", d.Metadata.Torch, c.torch)
			}
			notes := strings.Join(d.Notes, "\n")
			if c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// Chunks of a sharded tensor stay apart, for a reader that needs a rank's rows.
func TestChunksFollowTheRanks(t *testing.T) {
	d, err := Open("testdata/torch-2.15/sharded-4")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	v, err := tree.Get(d.Root(), "a")
	if err != nil {
		t.Fatal(err)
	}
	var rows []int64
	for _, c := range v.(*tensor.Tensor).Chunks {
		rows = append(rows, c.Shape[0])
	}
	if !slices.Equal(rows, []int64{2, 2, 1}) { // of 5 rows on 4 ranks; the last has none
		t.Errorf("rows per chunk %v", rows)
	}
	if chunks := d.Metadata.Find("a").Chunks; len(chunks) != 4 || chunks[3].Shape[0] != 0 {
		t.Errorf("the metadata has the chunks %v", chunks)
	}
}

// load is a directory of testdata in memory.
func load(t testing.TB, dir string) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS(filepath.Join("testdata", dir)), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == "expected.json" {
			return err
		}
		data, err := os.ReadFile(filepath.Join("testdata", dir, path))
		m[path] = &fstest.MapFile{Data: data, Mode: 0o444}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Opening reads the metadata alone, whatever the items hold.
func TestOpenReadsNoItem(t *testing.T) {
	m := load(t, "torch-2.15/sharded-2")
	for name, f := range m {
		if strings.HasSuffix(name, ".distcp") {
			clear(f.Data)
		}
	}
	d, err := OpenFS(m, "mem")
	if err != nil || len(d.Faults) > 0 {
		t.Fatal(err, d.Faults)
	}
	defer d.Close()
	v, err := tree.Get(d.Root(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.(*tensor.Tensor).Data().WriteTo(&bytes.Buffer{}); err == nil {
		t.Error("an item of zeros was read")
	}
}

// Many readers at once see the same, though most files and items are closed and
// opened again in between.
func TestConcurrentReads(t *testing.T) {
	d, err := Open("testdata/torch-2.15/many-files-2")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.files.most, d.items.most = 1, 1
	v, err := tree.Get(d.Root(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	other, err := tree.Get(d.Root(), "a")
	if err != nil {
		t.Fatal(err)
	}
	want := contents(t, v.(*tensor.Tensor))
	done := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 50 {
				var got, scratch bytes.Buffer
				if _, err = v.(*tensor.Tensor).Data().WriteTo(&got); err != nil {
					break
				}
				if _, err = other.(*tensor.Tensor).Data().WriteTo(&scratch); err != nil {
					break
				}
				if !bytes.Equal(got.Bytes(), want) {
					err = os.ErrInvalid
					break
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(d.files.entries); n > 1 {
		t.Errorf("%d files are open when nobody reads", n)
	}
}

// An item may be several zstd frames end to end, as another zstd binding writes it.
func TestFramesOfZstd(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	values := tensor.FromFloat32s([]int64{2, 3}, []float32{0, 1, 2, 3, 4, 5})
	m := write(t, pickle.NewDict("w", values), WriteOptions{Zstd: true})
	item := frames(encoder, archive(t, values))
	m["__0_0.distcp"].Data = item
	edit(t, m, func(m *Metadata) { m.Find("w").Chunks[0].Place.Length = int64(len(item)) })
	d, err := OpenFS(m, "mem")
	if err != nil || len(d.Faults) > 0 {
		t.Fatal(err, d.Faults)
	}
	defer d.Close()
	v, err := tree.Get(d.Root(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, v.(*tensor.Tensor)); !bytes.Equal(got, contents(t, values)) {
		t.Errorf("got %x", got)
	}
}

// Items may lie anywhere in a file, in any order, with other bytes between them,
// and be said to be longer than they are.
func TestItemsAnywhere(t *testing.T) {
	m := load(t, "torch-2.15/sharded-2")
	f := m["__0_0.distcp"]
	edit(t, m, func(m *Metadata) {
		for i := range m.Items {
			for c := range m.Items[i].Chunks {
				if place := &m.Items[i].Chunks[c].Place; m.Files[place.File] == "__0_0.distcp" {
					item := f.Data[place.Offset : place.Offset+place.Length]
					place.Offset = int64(len(f.Data)) + 13
					place.Length += 5
					f.Data = append(append(append(f.Data, "between items"...), item...), "slack"...)
				}
			}
		}
	})
	d, err := OpenFS(m, "mem")
	if err != nil || len(d.Faults) > 0 {
		t.Fatal(err, d.Faults)
	}
	defer d.Close()
	if err := everything(d); err != nil {
		t.Error(err)
	}
}

func TestClosedDirectory(t *testing.T) {
	d, err := Open("testdata/torch-2.15/small")
	if err != nil {
		t.Fatal(err)
	}
	v, err := tree.Get(d.Root(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.(*tensor.Tensor).ReadAll(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v", err)
	}
}

// TestReadGefenDirectories reads every item of what Gefen-X saved: directories of
// payloads and dense ones.
func TestReadGefenDirectories(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/checkpoints/*/dcp_*")
	if err != nil || len(paths) < 2 {
		t.Fatalf("found %d directories: %v", len(paths), err)
	}
	for _, path := range paths {
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Faults)+len(d.Notes)+len(d.Unread) > 0 {
			t.Errorf("%s: faults %v, notes %v, unread %v", path, d.Faults, d.Notes, d.Unread)
		}
		if err := everything(d); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if n := countLeaves(t, d.Root()); n != len(d.Metadata.Items) {
			t.Errorf("%s: %d leaves of %d items", path, n, len(d.Metadata.Items))
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
