package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// Every real archive is read, written, and read again with the same tensors;
// archive/zip agrees about what was written.
func TestRealArchivesRoundTrip(t *testing.T) {
	files, err := filepath.Glob(checkpoints + "*/*.pt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d checkpoints found: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			a := open(t, file)
			written := write(t, a.Root())
			if again := openBytes(t, written); dump(t, again.Root()) != dump(t, a.Root()) {
				t.Error("opened again it is different")
			}
			checkZip(t, written)
			keep(t, "checkpoints/"+filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), written)
		})
	}
}

// checkZip reads an archive with archive/zip, which checks every checksum, and
// looks where members begin.
func checkZip(t testing.TB, written []byte) {
	t.Helper()
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
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// What torch 2.6 writes for one tensor is what we write, but for the fingerprint
// at the end.
func TestArchiveIsThatOfPyTorch(t *testing.T) {
	theirs := read(t, releases[0]+"item.pt")
	ours := write(t, openBytes(t, theirs).Root())
	end := bytes.Index(theirs, []byte("archive/.data/serialization_id")) - localLen
	if end < 500 || !bytes.HasPrefix(ours, theirs[:end]) {
		t.Fatalf("members are\n%q\nexpected\n%q", ours[:min(len(ours), end)], theirs[:end])
	}
	members := func(b []byte) []byte {
		off := le.Uint32(b[len(b)-6:])
		return b[off : off+4*centralLen+uint32(len("archive/data.pklarchive/byteorderarchive/data/0archive/version"))]
	}
	if !bytes.Equal(members(ours), members(theirs)) {
		t.Errorf("the directory is\n%q\nexpected\n%q", members(ours), members(theirs))
	}
}

// storages are the lengths of an archive's storages, in bytes.
func storages(a *Archive) []int64 {
	sizes := make([]int64, len(a.records))
	for i, r := range a.records {
		sizes[i] = r.size
	}
	return sizes
}

func TestStoragesAreSharedAndTrimmed(t *testing.T) {
	in := open(t, releases[1]+"views.pt")
	a := openBytes(t, write(t, in.Root()))
	at := func(key string) *tensor.Tensor { return get(t, a, key).(*tensor.Tensor) }
	for _, pair := range [][2]string{{"tied_a", "tied_view"}, {"all", "offset"}, {"all", "columns"}, {"all", "strided"}} {
		if x, y := at(pair[0]).Chunks[0].Storage, at(pair[1]).Chunks[0].Storage; x != y {
			t.Errorf("%v do not share a storage any more", pair)
		}
	}
	if at("tied_a") != at("tied_b") {
		t.Error("one tensor in two places became two")
	}
	for key, bytes := range map[string]int64{"all": 96, "alone": 12, "scalar_view": 4, "expanded": 4, "permuted": 96, "channels_last": 240, "empty": 0} {
		if n := at(key).Chunks[0].Storage.Size(); n != bytes {
			t.Errorf("the storage of %s has %d bytes, expected %d", key, n, bytes)
		}
	}
	for _, key := range []string{"permuted", "channels_last", "expanded", "offset"} {
		was := get(t, in, key).(*tensor.Tensor).Chunks[0]
		if is := at(key).Chunks[0]; !slices.Equal(is.Stride, was.Stride) || is.Start != was.Start {
			t.Errorf("%s begins at %d with strides %v, expected %d and %v", key, is.Start, is.Stride, was.Start, was.Stride)
		}
	}
}

func TestATensorOfAnotherTypeGetsAStorageOfItsOwn(t *testing.T) {
	s := tensor.Memory([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	view := func(d tensor.DType, shape ...int64) *tensor.Tensor {
		return &tensor.Tensor{DType: d, Shape: shape, Chunks: []tensor.Chunk{tensor.Whole(shape, s)}}
	}
	tree := pickle.NewList(view(tensor.Uint8, 8), view(tensor.Float32, 2), view(tensor.Uint8, 2, 4), view(tensor.Uint16, 4), view(tensor.Float8E5M2, 8))
	a := openBytes(t, write(t, tree))
	if got, want := storages(a), []int64{8, 8, 8, 8}; !slices.Equal(got, want) {
		t.Errorf("storages of %v bytes, expected %v", got, want)
	}
	if got, want := dump(t, a.Root()), dump(t, tree); got != want {
		t.Errorf("it is\n%s\nexpected\n%s", got, want)
	}
	// A storage by itself cannot be another one, so it must be the first.
	ints := &BareStorage{Class: &pickle.Global{Module: "torch", Name: "IntStorage"}, Elements: 2, Data: s}
	if _, err := New(pickle.NewList(ints, view(tensor.Float32, 2)), WriteOptions{}); err != nil {
		t.Error(err)
	}
	_, err := New(pickle.NewList(view(tensor.Float32, 2), ints), WriteOptions{})
	fails(t, err, fault.Unsupported, "is shared with a tensor of another type")
}

// lines is content that is written a line at a time.
type lines struct {
	text string
	err  error
	lie  int64 // added to the size
}

func (l lines) Size() int64 { return int64(len(l.text)) + l.lie }

func (l lines) WriteTo(w io.Writer) (int64, error) {
	var n int64
	for _, line := range strings.SplitAfter(l.text, "\n") {
		k, err := io.WriteString(w, line)
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, l.err
}

func TestContentStreams(t *testing.T) {
	inner, err := New(pickle.NewDict("x", tensor.FromInt64(5)), WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	root := pickle.NewDict(
		"text", &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{3, 4}, Content: lines{text: "one\ntwo\nfour"}},
		"payload", &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{inner.Size()}, Content: inner})
	f, err := New(root, WriteOptions{Prefix: "model"})
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if _, err := f.WriteTo(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("written twice it is different")
	}
	checkZip(t, first.Bytes())
	a := openBytes(t, first.Bytes())
	if a.Prefix != "model" {
		t.Errorf("the prefix is %q", a.Prefix)
	}
	if text, err := get(t, a, "text").(*tensor.Tensor).ReadAll(); err != nil || string(text) != "one\ntwo\nfour" {
		t.Errorf("text is %q, %v", text, err)
	}
	nested, err := Open(get(t, a, "payload").(*tensor.Tensor).AsStorage(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := get(t, nested, "x").(*tensor.Tensor).Scalar(); err != nil || x != 5 {
		t.Errorf("x is %v, %v", x, err)
	}
}

// full fails after so many bytes.
type full struct{ left int }

var errFull = errors.New("disk full")

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	f.left -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestWriteFailures(t *testing.T) {
	content := func(l lines) pickle.Value {
		return pickle.NewDict("t", &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{l.Size()}, Content: l})
	}
	into := func(w io.Writer, root pickle.Value) error {
		f, err := New(root, WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteTo(w)
		return err
	}
	fails(t, into(io.Discard, content(lines{text: "a\nb", lie: 1})), fault.Internal, "came out as 3 bytes, expected 4")
	fails(t, into(io.Discard, content(lines{text: "a\nb", lie: -1})), fault.Internal, "came out as 3 bytes, expected 2")
	broken := fault.New(fault.Corrupt, "rotten")
	fails(t, into(io.Discard, content(lines{text: "a\nb", err: broken})), fault.Corrupt, "archive/data/0: rotten")
	whole := write(t, content(lines{text: "a\nb"}))
	for n := range whole {
		if err := into(&full{n}, content(lines{text: "a\nb"})); !errors.Is(err, errFull) {
			t.Fatalf("after %d bytes: %v, expected %v", n, err, errFull)
		}
	}
	if err := into(&full{len(whole)}, content(lines{text: "a\nb"})); err != nil {
		t.Error(err)
	}
	hole := &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{3}, Chunks: []tensor.Chunk{tensor.Whole([]int64{2}, tensor.Memory([]byte{1, 2}))}}
	_, err := New(hole, WriteOptions{})
	fails(t, err, fault.Incomplete, "2 of the 3 elements")
	for _, prefix := range []string{"a/b", "/", ".", "..", "a\nb", "\xff", strings.Repeat("x", 1<<16)} {
		_, err := New(nil, WriteOptions{Prefix: prefix})
		fails(t, err, fault.Usage, "cannot be the folder")
	}
	_, err = New(make(chan int), WriteOptions{})
	fails(t, err, fault.Internal, "cannot be written")
}

// weightsOnly are the globals that torch.load(weights_only=True) takes, of those that
// tensors are made of.
var weightsOnly = []string{"collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_parameter",
	"torch.storage.UntypedStorage"}

func TestTensorsAreMadeOfWhatWeightsOnlyAllows(t *testing.T) {
	var items []pickle.Value
	for d := tensor.Float32; d <= tensor.Float8E8M0FNU; d++ {
		x := tensor.FromBytes(d, []int64{2}, make([]byte, 2*d.Size()))
		parameter := *x
		parameter.Parameter, parameter.RequiresGrad = true, true
		items = append(items, x, &parameter)
	}
	data := write(t, pickle.NewList(items...))
	a := openBytes(t, data)
	r := reader{a: &Archive{Prefix: "archive"}}
	near, err := readEdges(tensor.Memory(data))
	if err != nil {
		t.Fatal(err)
	}
	x, _, err := findDirectory(near)
	if err != nil {
		t.Fatal(err)
	}
	if r.dir, err = readDirectory(near, x); err != nil {
		t.Fatal(err)
	}
	r.near = near
	text, err := r.whole("data.pkl", mostPickle)
	if err != nil {
		t.Fatal(err)
	}
	if text[0] != 0x80 || text[1] != 2 {
		t.Errorf("the pickle begins with %x, expected protocol 2", text[:2])
	}
	globals := 0
	_, err = pickle.Decode(text, pickle.Options{Reduce: func(o *pickle.Object) (pickle.Value, error) {
		globals++
		if name := o.Class.Module + "." + o.Class.Name; !slices.Contains(weightsOnly, name) {
			t.Errorf("it calls %s", name)
		}
		return o, nil
	}, Persistent: func(id pickle.Value, _ int64) (pickle.Value, error) {
		items, _ := pickle.Sequence(id)
		class := items[1].(*pickle.Global)
		if _, ok := tensor.OfStorageClass(class.Name); !(ok && class.Module == "torch") && class.Module+"."+class.Name != "torch.storage.UntypedStorage" {
			t.Errorf("a storage is of %s.%s", class.Module, class.Name)
		}
		if items[3] != "cpu" {
			t.Errorf("a storage is on %v", items[3])
		}
		return id, nil
	}})
	if err != nil || globals < 3*len(items) {
		t.Errorf("%d calls, %v", globals, err)
	}
	if got := len(tensors(a.Root())); got != len(items) {
		t.Errorf("%d tensors, expected %d", got, len(items))
	}
}

// Random trees come back as they were, and are written the same again.
func TestRandomTreesRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tree := drawTree(rt, 3, &[]pickle.Value{})
		first := write(t, tree)
		a := openBytes(t, first)
		if got, want := dump(t, a.Root()), dump(t, tree); got != want {
			rt.Fatalf("it is\n%s\nexpected\n%s", got, want)
		}
		if !bytes.Equal(write(t, a.Root()), first) {
			rt.Fatal("read and written again it is different")
		}
		checkZip(t, first)
	})
}

// drawTree draws a tree; leaves are what may stand in it again.
func drawTree(t *rapid.T, depth int, leaves *[]pickle.Value) pickle.Value {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 && kind < 3 {
		kind += 3
	}
	switch kind {
	case 0, 1, 2:
		var items []pickle.Value
		for range rapid.IntRange(0, 5).Draw(t, "items") {
			items = append(items, drawTree(t, depth-1, leaves))
		}
		switch kind {
		case 0:
			return pickle.NewList(items...)
		case 1:
			return pickle.NewTuple(items...)
		}
		d := pickle.NewDict()
		for i, item := range items {
			d.Set(rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "key")+string(rune('0'+i)), item)
		}
		return d
	case 3:
		return rapid.Int64().Draw(t, "int")
	case 4:
		if len(*leaves) > 0 {
			return rapid.SampledFrom(*leaves).Draw(t, "again")
		}
		return nil
	}
	d := tensor.DType(rapid.IntRange(int(tensor.Float32), int(tensor.Float8E8M0FNU)).Draw(t, "dtype"))
	shape := rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 3).Draw(t, "shape")
	n, _ := tensor.Volume(shape)
	data := rapid.SliceOfN(rapid.Byte(), int(n)*d.Size(), int(n)*d.Size()).Draw(t, "data")
	x := tensor.FromBytes(d, shape, data)
	if kind == 7 && n > 0 { // a view of what is already there
		x.Shape, x.Chunks[0].Shape, x.Chunks[0].Offset, x.Chunks[0].Stride = []int64{2, n}, []int64{2, n}, []int64{0, 0}, []int64{0, 1}
	}
	x.RequiresGrad = rapid.Bool().Draw(t, "grad")
	x.Parameter = rapid.Bool().Draw(t, "parameter")
	*leaves = append(*leaves, x)
	return x
}
