package dcp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
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
	"gefenckpt/internal/fault"

	"pgregory.net/rapid"
)

// write writes a tree as a directory in memory.
func write(t testing.TB, root pickle.Value, o WriteOptions) fstest.MapFS {
	t.Helper()
	w, err := NewWriter(root, o)
	if err != nil {
		t.Fatal(err)
	}
	m := fstest.MapFS{}
	for i, f := range w.Files() {
		var out bytes.Buffer
		if err := w.WriteFile(i, &out); err != nil {
			t.Fatal(err)
		}
		if n := int64(out.Len()); n != f.Size && !(o.Zstd && n < f.Size) {
			t.Fatalf("%s has %d bytes, and %d were planned", f.Name, n, f.Size)
		}
		m[f.Name] = &fstest.MapFile{Data: out.Bytes()}
	}
	size := w.MetadataSize()
	var out bytes.Buffer
	if err := w.WriteMetadata(&out); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != size {
		t.Fatalf("the metadata has %d bytes, and %d were planned", out.Len(), size)
	}
	m[metadataName] = &fstest.MapFile{Data: out.Bytes()}
	return m
}

func equalFiles(a, b fstest.MapFS) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if b[name] == nil || !bytes.Equal(a[name].Data, b[name].Data) {
			return false
		}
	}
	return true
}

// sharded cuts a tensor in memory along a dimension into parts of so many rows.
func sharded(v *tensor.Tensor, dim int, rows []int64) *Sharded {
	s := &Sharded{Dim: dim}
	offset := int64(0)
	for _, n := range rows {
		shape := slices.Clone(v.Shape)
		shape[dim] = n
		c := v.Chunks[0]
		s.Parts = append(s.Parts, &tensor.Tensor{DType: v.DType, Shape: shape, RequiresGrad: v.RequiresGrad, Chunks: []tensor.Chunk{{
			Offset: make([]int64, len(shape)), Shape: shape, Storage: c.Storage, Start: c.Start + offset*c.Stride[dim], Stride: c.Stride}}})
		offset += n
	}
	return s
}

// drawTensor makes a tensor of any dtype and any small shape.
func drawTensor(t *rapid.T) *tensor.Tensor {
	dtype := tensor.DType(rapid.IntRange(int(tensor.Float32), int(tensor.Float8E8M0FNU)).Draw(t, "dtype"))
	shape := rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 3).Draw(t, "shape")
	n, _ := tensor.Volume(shape)
	data := rapid.SliceOfN(rapid.Byte(), int(n)*dtype.Size(), int(n)*dtype.Size()).Draw(t, "data")
	v := tensor.FromBytes(dtype, shape, data)
	v.RequiresGrad = rapid.Bool().Draw(t, "requires grad")
	return v
}

// drawTree makes a tree, and the same as a reader should find it: parts of a
// sharded tensor joined, keys as strings, nothing of empty dicts.
func drawTree(t *rapid.T, depth int) (pickle.Value, pickle.Value) {
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if depth == 0 {
		kind = 8
	}
	switch {
	case kind <= 3:
		in, out := &pickle.Dict{}, &pickle.Dict{}
		for i := range rapid.IntRange(0, 4).Draw(t, "entries") {
			var key pickle.Value = rapid.StringMatching(`[a-zé_]{0,6}`).Draw(t, "key") + fmt.Sprint(i)
			if rapid.IntRange(0, 4).Draw(t, "int key") == 0 {
				key = int64(i)
			}
			a, b := drawTree(t, depth-1)
			in.Pairs = append(in.Pairs, pickle.Pair{Key: key, Value: a})
			if b != nil {
				out.Set(fmt.Sprint(key), b)
			}
		}
		if len(out.Pairs) == 0 {
			return in, nil
		}
		return in, out
	case kind == 4:
		in, out := &pickle.List{}, &pickle.List{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			a, b := drawTree(t, depth-1)
			in.Items, out.Items = append(in.Items, a), append(out.Items, b)
		}
		if f := (&flattener{tensors: map[*pickle.List]bool{}}); true {
			if holds, _ := f.holdsTensor(in, 0); !holds {
				return in, leaf{in}
			}
		}
		for len(out.Items) > 0 && out.Items[len(out.Items)-1] == nil {
			out.Items = out.Items[:len(out.Items)-1]
		}
		if len(out.Items) == 0 {
			return in, nil
		}
		return in, out
	case kind <= 6:
		v := drawTensor(t)
		return v, v
	case kind == 7:
		v := drawTensor(t)
		if len(v.Shape) == 0 {
			return v, v
		}
		dim := rapid.IntRange(0, len(v.Shape)-1).Draw(t, "dim")
		var rows []int64
		left := v.Shape[dim]
		for range rapid.IntRange(0, 4).Draw(t, "ranks") {
			rows = append(rows, rapid.Int64Range(0, left).Draw(t, "rows"))
			left -= rows[len(rows)-1]
		}
		return sharded(v, dim, append(rows, left)), v
	}
	v := rapid.SampledFrom([]pickle.Value{
		nil, true, false, int64(0), int64(-1), int64(math.MinInt64), 0.5, math.Copysign(0, -1), "", "text", pickle.Bytes("\x00\xff"),
		pickle.NewTuple(int64(1), pickle.NewDict("a", 1.5)), pickle.NewList(), pickle.NewTuple(),
	}).Draw(t, "scalar")
	return v, leaf{v}
}

// leaf marks a value that is one item.
type leaf struct{ v pickle.Value }

// same compares a tree that was read with what drawTree expects.
func same(t *rapid.T, path string, got, want pickle.Value) {
	if l, ok := want.(leaf); ok {
		v, err := tree.Resolve(got)
		if _, lazy := got.(*tree.Lazy); !lazy || err != nil || !pickle.Equal(v, l.v) {
			t.Fatalf("%s: got %s (%v), want %s", path, tree.Describe(v), err, tree.Describe(l.v))
		}
		return
	}
	switch want := want.(type) {
	case nil:
		if got != nil {
			t.Fatalf("%s: got %s, want nothing", path, tree.Describe(got))
		}
	case *tensor.Tensor:
		v, ok := got.(*tensor.Tensor)
		if !ok || v.DType != want.DType || !slices.Equal(v.Shape, want.Shape) || v.RequiresGrad != want.RequiresGrad {
			t.Fatalf("%s: got %s, want %s", path, tree.Describe(got), tree.Describe(want))
		}
		var a, b bytes.Buffer
		if _, err := v.Data().WriteTo(&a); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		want.Data().WriteTo(&b)
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("%s: got %x, want %x", path, a.Bytes(), b.Bytes())
		}
	case *pickle.Dict:
		d, ok := got.(*pickle.Dict)
		if !ok || len(d.Pairs) != len(want.Pairs) {
			t.Fatalf("%s: got %s, want %s", path, tree.Describe(got), tree.Describe(want))
		}
		for i, p := range want.Pairs {
			if d.Pairs[i].Key != p.Key {
				t.Fatalf("%s: entry %d is %v, want %v", path, i, d.Pairs[i].Key, p.Key)
			}
			same(t, path+"."+p.Key.(string), d.Pairs[i].Value, p.Value)
		}
	case *pickle.List:
		l, ok := got.(*pickle.List)
		if !ok || len(l.Items) != len(want.Items) {
			t.Fatalf("%s: got %s, want %s", path, tree.Describe(got), tree.Describe(want))
		}
		for i := range want.Items {
			same(t, fmt.Sprintf("%s.%d", path, i), l.Items[i], want.Items[i])
		}
	}
}

// What is written is read back equal, and a second time gives the same bytes,
// from the tree and from what was read.
func TestWriteThenRead(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, want := drawTree(rt, 4)
		in = pickle.NewDict("root", in)
		o := WriteOptions{Zstd: rapid.IntRange(0, 9).Draw(rt, "zstd") == 0}
		files := write(t, in, o)
		if !equalFiles(files, write(t, in, o)) {
			rt.Fatal("a second write gives other bytes")
		}
		d, err := OpenFS(files, "mem")
		if err != nil {
			rt.Fatal(err)
		}
		defer d.Close()
		if len(d.Faults) > 0 || len(d.Unread) > 0 {
			rt.Fatal(d.Faults, d.Unread)
		}
		got, _ := d.Root().(*pickle.Dict).Get("root")
		same(rt, "root", got, want)
	})
}

// A directory that was read and written again is stable.
func TestRewrite(t *testing.T) {
	for _, dir := range []string{"torch-2.6/tree", "torch-2.15/sharded-4", "torch-2.15/layouts", "torch-2.15/zstd"} {
		t.Run(dir, func(t *testing.T) {
			d, err := Open("testdata/" + dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			first := write(t, d.Root(), WriteOptions{})
			again, err := OpenFS(first, "mem")
			if err != nil || len(again.Faults) > 0 {
				t.Fatal(err, again)
			}
			defer again.Close()
			if !equalFiles(first, write(t, again.Root(), WriteOptions{})) {
				t.Error("writing what was written gives other bytes")
			}
		})
	}
}

func TestWriterLayout(t *testing.T) {
	rows := tensor.FromFloat32s([]int64{5, 2}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	nothing := tensor.FromFloat32s([]int64{0, 4}, nil)
	root := pickle.NewDict(
		"a", sharded(rows, 0, []int64{2, 0, 3}),
		"b", rows,
		"c", sharded(nothing, 0, []int64{0, 0, 0}),
		"d", &Sharded{Parts: []*tensor.Tensor{nil, rows}},
		"empty", pickle.NewDict("x", pickle.NewDict()),
		"n", int64(3),
	)
	w, err := NewWriter(root, WriteOptions{World: 4})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.Dropped, " "); got != "empty.x" {
		t.Errorf("dropped %q", got)
	}
	var names []string
	for _, f := range w.Files() {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "__0_0.distcp __1_0.distcp __2_0.distcp __3_0.distcp" {
		t.Errorf("files %s", got)
	}
	d, err := OpenFS(write(t, root, WriteOptions{World: 4}), "mem")
	if err != nil || len(d.Faults) > 0 || len(d.Unread) > 0 {
		t.Fatal(err, d.Faults, d.Unread)
	}
	defer d.Close()
	var got []string
	for i := range d.Metadata.Items {
		item := &d.Metadata.Items[i]
		for _, c := range item.Chunks {
			got = append(got, fmt.Sprintf("%s %v+%v %s", item.FQN, c.Offset, c.Shape, d.Metadata.Files[c.Place.File]))
		}
	}
	want := []string{
		"a [0 0]+[2 2] __0_0.distcp", "a [2 0]+[3 2] __2_0.distcp",
		"b [0 0]+[5 2] __0_0.distcp",
		"c [0 0]+[0 4] __0_0.distcp",
		"d [0 0]+[5 2] __1_0.distcp",
		"n []+[] __0_0.distcp",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWriterRefuses(t *testing.T) {
	cycle := pickle.NewDict()
	cycle.Set("self", cycle)
	list := pickle.NewList()
	list.Items = append(list.Items, list)
	var shared pickle.Value = pickle.NewDict()
	for range 40 {
		shared = pickle.NewDict("a", shared, "b", shared)
	}
	v := tensor.FromFloat32s([]int64{2}, []float32{1, 2})
	for _, c := range []struct {
		name string
		root pickle.Value
		kind fault.Kind
		want string
	}{
		{"no dict", pickle.NewList(), fault.Internal, "the root of the tree is a list of 0"},
		{"two values of one name", pickle.NewDict("a.b", int64(1), "a", pickle.NewDict("b", int64(2))), fault.Unsupported, "a.b: two values of the tree have this name"},
		{"a number and its string", pickle.NewDict("a", pickle.NewDict(int64(0), int64(1), "0", int64(2))), fault.Unsupported, "a.0: two values"},
		{"a key that is a tuple", pickle.NewDict("a", &pickle.Dict{Pairs: []pickle.Pair{{Key: pickle.NewTuple()}}}), fault.Unsupported, "a: a dict has a tuple of 0 for a key"},
		{"a dict in itself", cycle, fault.Unsupported, "nests deeper than 500, or contains itself"},
		{"a list in itself", pickle.NewDict("l", list), fault.Unsupported, "l: a list nests deeper than 500, or contains itself"},
		{"a tree that doubles 40 times", shared, fault.Resource, "more than 4194304 values"},
		{"no parts", pickle.NewDict("s", &Sharded{}), fault.Internal, "s: a sharded tensor has no part"},
		{"parts that do not fit", pickle.NewDict("s", &Sharded{Parts: []*tensor.Tensor{v, tensor.FromFloat32s([]int64{2, 1}, []float32{1, 2})}}), fault.Internal, "s: rank 1's part is"},
		{"a dimension too many", pickle.NewDict("s", &Sharded{Dim: 1, Parts: []*tensor.Tensor{v}}), fault.Internal, "sharded along dimension 1"},
		{"more parts than ranks", pickle.NewDict("s", &Sharded{Parts: []*tensor.Tensor{v, v, v}}), fault.Internal, "parts for 3 ranks, and there are 2"},
		{"a value that cannot be read", pickle.NewDict("x", &tree.Lazy{Load: func() (pickle.Value, error) {
			return nil, fault.New(fault.Corrupt, "bad")
		}}), fault.Corrupt, "x: bad"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewWriter(c.root, WriteOptions{World: 2})
			if err == nil {
				t.Fatalf("there is no error, want %s: ...%s...", c.kind, c.want)
			}
			if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s: %v\nwant %s: ...%s...", fault.KindOf(err), err, c.kind, c.want)
			}
		})
	}
}

// short is content that gives fewer bytes than it says.
type short struct{}

func (short) Size() int64 { return 8 }

func (short) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(make([]byte, 4))
	return int64(n), err
}

// full is a disk with room for so many bytes.
type full int

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), int(*f))
	*f -= full(n)
	if n < len(p) {
		return n, fault.New(fault.Resource, "disk full")
	}
	return n, nil
}

func TestWriterErrors(t *testing.T) {
	root := pickle.NewDict("w", &tensor.Tensor{DType: tensor.Float32, Shape: []int64{2}, Content: short{}}, "n", int64(1))
	w, err := NewWriter(root, WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteMetadata(io.Discard); err == nil || !strings.Contains(err.Error(), "before __0_0.distcp") {
		t.Errorf("the metadata came first: %v", err)
	}
	if err := w.WriteFile(0, io.Discard); err == nil || !strings.Contains(err.Error(), "w: ") {
		t.Errorf("short content: %v", err)
	}
	for _, o := range []WriteOptions{{}, {Zstd: true}} {
		w, err := NewWriter(pickle.NewDict("n", int64(1), "v", tensor.FromInt64(7)), o)
		if err != nil {
			t.Fatal(err)
		}
		var whole bytes.Buffer
		if err := w.WriteFile(0, &whole); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < whole.Len(); n += 13 {
			disk := full(n)
			if err := w.WriteFile(0, &disk); fault.KindOf(err) != fault.Resource {
				t.Fatalf("zstd %v, a disk of %d bytes: %v", o.Zstd, n, err)
			}
		}
	}
}

var interop = flag.String("interop", "", "write the directories that load_directories.py loads with PyTorch into this folder")

// everyKind is a tree of all that a directory can hold, with tensors of every
// dtype up to last. PyTorch 2.6 has those up to Float8E5M2FNUZ.
func everyKind(last tensor.DType) *pickle.Dict {
	dtypes := pickle.NewDict()
	for d := tensor.Float32; d <= last; d++ {
		data := make([]byte, 6*d.Size())
		for i := range data {
			data[i] = byte(37*i + 101)
			if d == tensor.Bool {
				data[i] &= 1
			}
		}
		dtypes.Set(d.String(), tensor.FromBytes(d, []int64{2, 3}, data))
	}
	values := make([]float32, 33)
	for i := range values {
		values[i] = float32(i) / 2
	}
	rows := func(shape ...int64) *tensor.Tensor {
		n, _ := tensor.Volume(shape)
		return tensor.FromFloat32s(shape, values[:n])
	}
	return pickle.NewDict(
		"model", pickle.NewDict("0.weight", rows(5, 3), "norm", rows(7), "scalar", rows(), "nothing", rows(0, 4), "hollow", rows(3, 0)),
		"optimizer", pickle.NewDict(
			"rows", sharded(rows(11, 3), 0, []int64{4, 4, 3}),
			"uneven", sharded(rows(7), 0, []int64{5, 0, 2}),
			"columns", sharded(rows(3, 5), 1, []int64{2, 3}),
			"one", sharded(rows(1), 0, []int64{1, 0, 0}),
			"none", sharded(rows(0, 2), 0, []int64{0, 0, 0}),
			"param_groups", pickle.NewList(
				pickle.NewDict("lr", 0.001, "betas", pickle.NewTuple(0.9, 0.95), "params", pickle.StringList([]string{"a", "b"})),
				pickle.NewDict("lr", int64(-7), "t", rows(2))),
		),
		"dtypes", dtypes,
		"plain", pickle.NewDict("none", nil, "true", true, "big", new(big.Int).Lsh(big.NewInt(-1), 70), "text", "naïve ☃",
			"raw", pickle.Bytes("\x00\xff"), "list", pickle.NewList(int64(1), pickle.NewList()), "pair", pickle.NewTuple(int64(1), "x")),
		strings.Repeat("long", 80), int64(1),
		"ключ", int64(1<<40),
	)
}

// TestWriteForTorch writes every kind of value. With -interop the directories
// stay, for PyTorch to load.
func TestWriteForTorch(t *testing.T) {
	out := *interop
	if out == "" {
		out = t.TempDir()
	}
	for _, c := range []struct {
		name string
		last tensor.DType
		WriteOptions
	}{
		{"every-kind", tensor.Float8E5M2FNUZ, WriteOptions{}},
		{"every-kind-zstd", tensor.Float8E8M0FNU, WriteOptions{Zstd: true}},
	} {
		dir := filepath.Join(out, c.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, f := range write(t, everyKind(c.last), c.WriteOptions) {
			if err := os.WriteFile(filepath.Join(dir, file), f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		d, err := Open(dir)
		if err != nil || len(d.Faults) > 0 {
			t.Fatal(err, d)
		}
		var list []map[string]any
		tree.Walk(d.Root(), func(path tree.Path, v pickle.Value) bool {
			if v, ok := v.(*tensor.Tensor); ok {
				list = append(list, map[string]any{"path": slices.Clone(path), "dtype": v.DType.String(), "shape": v.Shape, "data": hex.EncodeToString(contents(t, v))})
			}
			return true
		})
		if err := everything(d); err != nil {
			t.Fatal(err)
		}
		d.Close()
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "expected.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
