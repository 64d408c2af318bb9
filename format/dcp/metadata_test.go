package dcp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// object is an instance as torch pickles it: a class, and attributes by name.
func object(module, class string, attributes ...pickle.Value) *pickle.Object {
	return &pickle.Object{
		Class:    &pickle.Global{Module: module, Name: class},
		Args:     pickle.NewTuple(),
		New:      true,
		State:    pickle.NewDict(attributes...),
		HasState: len(attributes) > 0,
	}
}

func call(module, name string, args ...pickle.Value) *pickle.Object {
	return &pickle.Object{Class: &pickle.Global{Module: module, Name: name}, Args: pickle.NewTuple(args...)}
}

func size(n ...int64) *pickle.Object { return call("torch", "Size", pickle.IntTuple(n)) }

// props is a TensorProperties; parts beyond its five are of newer releases.
func props(dtype string, more ...pickle.Value) *pickle.Object {
	o := object(metadataModule, "TensorProperties", "", "")
	o.State = pickle.NewTuple(append([]pickle.Value{
		&pickle.Global{Module: "torch", Name: dtype}, call("torch.serialization", "_get_layout", "torch.strided"),
		false, call(metadataModule, "_MEM_FORMAT_ENCODING", int64(0)), false}, more...)...)
	return o
}

func tensorMeta(properties pickle.Value, shape *pickle.Object, chunks ...pickle.Value) *pickle.Object {
	return object(metadataModule, "TensorStorageMetadata", "properties", properties, "size", shape, "chunks", pickle.NewList(chunks...))
}

func chunkMeta(offsets, sizes pickle.Value) *pickle.Object {
	return object(metadataModule, "ChunkStorageMetadata", "offsets", offsets, "sizes", sizes)
}

func bytesMeta() *pickle.Object { return object(metadataModule, "BytesStorageMetadata") }

func index(attributes ...pickle.Value) *pickle.Object {
	return object(metadataModule, "MetadataIndex", attributes...)
}

func info(path string, offset, length int64, more ...pickle.Value) *pickle.Object {
	return object(filesystemModule, "_StorageInfo", append([]pickle.Value{"relative_path", path, "offset", offset, "length", length}, more...)...)
}

// read pickles a Metadata of these attributes and reads it.
func read(t testing.TB, attributes ...pickle.Value) (*Metadata, error) {
	t.Helper()
	data, err := pickle.Append(nil, object(metadataModule, "Metadata", attributes...), pickle.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ReadMetadata(data)
}

// row is a metadata of one tensor "w", float32 [4], in two chunks.
func row() (items, planner, storage *pickle.Dict) {
	items = pickle.NewDict("w", tensorMeta(props("float32"), size(4), chunkMeta(size(0), size(3)), chunkMeta(size(3), size(1))))
	planner = pickle.NewDict("w", pickle.NewTuple("w"))
	storage = pickle.NewDict(
		index("fqn", "w", "index", int64(0), "offset", size(0)), info("__0_0.distcp", 0, 100),
		index("fqn", "w", "index", int64(1), "offset", size(3)), info("__1_0.distcp", 0, 100),
	)
	return
}

func TestReadMetadataTolerates(t *testing.T) {
	items, planner, storage := row()
	want, err := read(t, "state_dict_metadata", items, "planner_data", planner, "storage_data", storage)
	if err != nil || len(want.Faults) > 0 || len(want.Notes) > 0 {
		t.Fatal(err, want)
	}
	for _, c := range []struct {
		name       string
		attributes func() []pickle.Value
		note       string
	}{
		{"None for what is not there", func() []pickle.Value { return []pickle.Value{"storage_meta", nil, "version", nil} }, ""},
		{"a path as checkpoint_id", func() []pickle.Value {
			return []pickle.Value{"storage_meta", object(metadataModule, "StorageMeta",
				"checkpoint_id", call("pathlib._local", "PosixPath", "/", "ckpt"), "save_id", "x", "load_id", nil, "modules", pickle.NewList())}
		}, ""},
		{"a path of Windows", func() []pickle.Value {
			return []pickle.Value{"storage_meta", object(metadataModule, "StorageMeta", "checkpoint_id", call("pathlib", "WindowsPath", "C:\\ckpt"))}
		}, ""},
		{"unknown attributes", func() []pickle.Value {
			storage.Pairs[0].Value = info("__0_0.distcp", 0, 100, "checksum", int64(7))
			return []pickle.Value{"owner", object("torch.distributed.checkpoint.owners", "Owner", "name", "me")}
		}, `Metadata has an attribute "owner" that gefenckpt does not know`},
		{"six parts", func() []pickle.Value {
			items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Set("properties", props("float32", pickle.IntTuple([]int64{1})))
			return nil
		}, ""},
		{"seven parts", func() []pickle.Value {
			items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Set("properties", props("float32", nil, nil))
			return nil
		}, "TensorProperties has 7 parts"},
		{"no index", func() []pickle.Value {
			storage.Pairs[1].Key = index("fqn", "w", "offset", size(3))
			return nil
		}, ""},
		{"a wrong index", func() []pickle.Value {
			storage.Pairs[1].Key = index("fqn", "w", "offset", size(3), "index", int64(7))
			return nil
		}, ""},
		{"index None", func() []pickle.Value {
			storage.Pairs[1].Key = index("fqn", "w", "offset", size(3), "index", nil)
			return nil
		}, ""},
		{"no transforms", func() []pickle.Value {
			storage.Pairs[0].Value = info("__0_0.distcp", 0, 100, "transform_descriptors", nil)
			storage.Pairs[1].Value = info("__1_0.distcp", 0, 100, "transform_descriptors", pickle.NewList())
			return nil
		}, ""},
		{"entries in another order", func() []pickle.Value {
			slices.Reverse(storage.Pairs)
			return nil
		}, ""},
		{"an empty chunk without an entry", func() []pickle.Value {
			list, _ := items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Get("chunks")
			l := list.(*pickle.List)
			l.Items = append(l.Items, chunkMeta(size(4), size(0)), chunkMeta(size(4), size(0)))
			return nil
		}, ""},
		{"plain tuples for sizes", func() []pickle.Value {
			items.Pairs[0].Value = tensorMeta(props("float32"), size(4), chunkMeta(pickle.IntTuple([]int64{0}), pickle.IntList([]int64{3})), chunkMeta(size(3), size(1)))
			return nil
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			items, planner, storage = row()
			more := c.attributes()
			got, err := read(t, append([]pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}, more...)...)
			if err != nil || len(got.Faults) > 0 {
				t.Fatal(err, got)
			}
			if notes := strings.Join(got.Notes, "\n"); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			chunks := slices.DeleteFunc(slices.Clone(got.Find("w").Chunks), func(c Chunk) bool { return c.Shape[0] == 0 })
			for i := range chunks {
				w := want.Find("w").Chunks[i]
				if !slices.Equal(chunks[i].Offset, w.Offset) || got.Files[chunks[i].Place.File] != want.Files[w.Place.File] {
					t.Errorf("chunk %d is %v, want %v", i, chunks[i], w)
				}
			}
		})
	}
}

func TestReadMetadataRefuses(t *testing.T) {
	bytesItem := func(fqns ...string) (items, planner, storage *pickle.Dict) {
		items, planner, storage = pickle.NewDict(), pickle.NewDict(), pickle.NewDict()
		for i, fqn := range fqns {
			items.Set(fqn, bytesMeta())
			storage.Pairs = append(storage.Pairs, pickle.Pair{Key: index("fqn", fqn, "index", nil), Value: info("f", int64(100*i), 100)})
		}
		return
	}
	for _, c := range []struct {
		name string
		kind fault.Kind
		want string
		meta func() []pickle.Value
	}{
		{"no items", fault.Corrupt, "a Metadata has no state_dict_metadata", func() []pickle.Value { return []pickle.Value{"storage_data", pickle.NewDict()} }},
		{"no places", fault.Corrupt, "a Metadata has no storage_data", func() []pickle.Value { return []pickle.Value{"state_dict_metadata", pickle.NewDict()} }},
		{"items are no dict", fault.Corrupt, "Metadata.state_dict_metadata is", func() []pickle.Value { return []pickle.Value{"state_dict_metadata", int64(1)} }},
		{"a name that is no string", fault.Corrupt, "a key of state_dict_metadata is 1", func() []pickle.Value {
			return []pickle.Value{"state_dict_metadata", pickle.NewDict(int64(1), bytesMeta()), "storage_data", pickle.NewDict()}
		}},
		{"an unknown kind of item", fault.Unsupported, "neither a tensor nor bytes", func() []pickle.Value {
			return []pickle.Value{"state_dict_metadata", pickle.NewDict("w", object(metadataModule, "NewStorageMetadata", "x", nil)), "storage_data", pickle.NewDict()}
		}},
		{"an unknown dtype", fault.Unsupported, "w: its dtype is torch.quint4x2", func() []pickle.Value {
			items, planner, storage := row()
			items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Set("properties", props("quint4x2"))
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"a sparse layout", fault.Unsupported, "only strided tensors", func() []pickle.Value {
			items, planner, storage := row()
			p := props("float32")
			p.State.(*pickle.Tuple).Items[1] = call("torch.serialization", "_get_layout", "torch.sparse_coo")
			items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Set("properties", p)
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"an unknown memory format", fault.Corrupt, "its memory format is 9", func() []pickle.Value {
			items, planner, storage := row()
			p := props("float32")
			p.State.(*pickle.Tuple).Items[3] = call(metadataModule, "_MEM_FORMAT_ENCODING", int64(9))
			items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Set("properties", p)
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"four parts", fault.Corrupt, "has 4 parts where 5 or 6 belong", func() []pickle.Value {
			items, _, storage := row()
			p := props("float32")
			p.State = pickle.NewTuple(p.State.(*pickle.Tuple).Items[:4]...)
			items.Pairs[0].Value.(*pickle.Object).State.(*pickle.Dict).Set("properties", p)
			return []pickle.Value{"state_dict_metadata", items, "storage_data", storage}
		}},
		{"a negative size", fault.Corrupt, "a size has -1 where", func() []pickle.Value {
			return []pickle.Value{"state_dict_metadata", pickle.NewDict("w", tensorMeta(props("float32"), size(-1))), "storage_data", pickle.NewDict()}
		}},
		{"a size of True", fault.Corrupt, "where the size of a dimension belongs", func() []pickle.Value {
			return []pickle.Value{"state_dict_metadata", pickle.NewDict("w", tensorMeta(props("float32"), call("torch", "Size", pickle.NewTuple(true)))), "storage_data", pickle.NewDict()}
		}},
		{"too many dimensions", fault.Corrupt, "a size of 65 dimensions", func() []pickle.Value {
			return []pickle.Value{"state_dict_metadata", pickle.NewDict("w", tensorMeta(props("float32"), size(make([]int64, 65)...))), "storage_data", pickle.NewDict()}
		}},
		{"a negative offset", fault.Corrupt, "_StorageInfo.offset is -1", func() []pickle.Value {
			items, planner, storage := row()
			storage.Pairs[0].Value = info("f", -1, 100)
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"a chunk without an entry", fault.Corrupt, "w: storage_data has no entry for the chunk at [3] of shape [1]", func() []pickle.Value {
			items, planner, storage := row()
			storage.Pairs = storage.Pairs[:1]
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"an entry without a chunk", fault.Corrupt, "w: storage_data has an entry at offset [2], where no chunk begins", func() []pickle.Value {
			items, planner, storage := row()
			storage.Pairs = append(storage.Pairs, pickle.Pair{Key: index("fqn", "w", "offset", size(2)), Value: info("f", 0, 1)})
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"an entry without an offset", fault.Corrupt, "w: storage_data has an entry without an offset", func() []pickle.Value {
			items, planner, storage := row()
			storage.Pairs[0].Key = index("fqn", "w", "offset", nil)
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"an entry without an item", fault.Corrupt, "v: storage_data has an entry for it, and state_dict_metadata has none", func() []pickle.Value {
			items, planner, storage := row()
			storage.Pairs = append(storage.Pairs, pickle.Pair{Key: index("fqn", "v", "offset", size(2)), Value: info("f", 0, 1)})
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"two entries for a chunk", fault.Corrupt, "w: storage_data has two entries at offset [3]", func() []pickle.Value {
			items, planner, storage := row()
			storage.Pairs = append(storage.Pairs, storage.Pairs[1])
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"bytes without an entry", fault.Corrupt, "n: storage_data has no entry for it", func() []pickle.Value {
			items, planner, _ := bytesItem("n")
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", pickle.NewDict()}
		}},
		{"bytes with an offset", fault.Corrupt, "n: storage_data has an entry at offset []", func() []pickle.Value {
			items, planner, storage := bytesItem("n")
			storage.Pairs[0].Key = index("fqn", "n", "offset", size())
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"a path of None", fault.Corrupt, "n: its path in planner_data does not spell its name", func() []pickle.Value {
			items, planner, storage := bytesItem("n")
			planner.Set("n", pickle.NewTuple(nil))
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"an empty path", fault.Corrupt, "n: its path in planner_data does not spell its name", func() []pickle.Value {
			items, planner, storage := bytesItem("n")
			planner.Set("n", pickle.NewTuple())
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
		{"a path that is no tuple", fault.Corrupt, `n: its path in planner_data is "n", not a tuple`, func() []pickle.Value {
			items, planner, storage := bytesItem("n")
			planner.Set("n", "n")
			return []pickle.Value{"state_dict_metadata", items, "planner_data", planner, "storage_data", storage}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := read(t, c.meta()...)
			if err == nil && len(m.Faults) > 0 {
				err = m.Faults[0]
			}
			if err == nil {
				t.Fatalf("there is no error, want %s: ...%s...", c.kind, c.want)
			}
			if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s: %v\nwant %s: ...%s...", fault.KindOf(err), err, c.kind, c.want)
			}
		})
	}
}

// Offsets beyond 2 and 4 GiB, names of every length and script.
func TestReadMetadataValues(t *testing.T) {
	for _, n := range []int64{0, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 + 1, 1 << 40, 1 << 62} {
		name := strings.Repeat("Größe", int(n%97)) + fmt.Sprint(n)
		m := &Metadata{
			Items: []Item{{FQN: name, Tensor: true, DType: tensor.Uint8, Shape: []int64{n / 2}, depth: 1,
				Chunks: []Chunk{{Offset: []int64{0}, Shape: []int64{n / 2}, Place: Place{Offset: n, Length: 5}}}}},
			Files: []string{"__0_0.distcp"}, parts: []pickle.Value{name}, paths: []int32{0}, transforms: [][]string{nil}, Planned: true,
		}
		got := rewrite(t, m)
		if diff := cmp.Diff(m.Items, got.Items, compareItems); diff != "" {
			t.Errorf("%d: %s", n, diff)
		}
		if len(got.Faults) > 0 {
			t.Error(got.Faults)
		}
	}
}

// rewrite writes a metadata and reads it.
func rewrite(t testing.TB, m *Metadata) *Metadata {
	t.Helper()
	var out strings.Builder
	if err := emit(&out, m); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMetadata([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var compareItems = cmp.Options{cmp.AllowUnexported(Item{}, Place{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Item{}, "path")}

// summary is all that a metadata means.
func summary(m *Metadata) string {
	var b strings.Builder
	for i := range m.Items {
		item := &m.Items[i]
		fmt.Fprintf(&b, "%q %v %s %v %v %q", item.FQN, item.Tensor, item.DType, item.RequiresGrad, item.Shape, m.Path(item))
		for c := range item.Chunks {
			chunk := &item.Chunks[c]
			file := ""
			if chunk.Place.File != noFile {
				file = m.Files[chunk.Place.File]
			}
			fmt.Fprintf(&b, " %v+%v %q %d+%d %q", chunk.Offset, chunk.Shape, file, chunk.Place.Offset, chunk.Place.Length, m.Transforms(chunk))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Every cut and every flipped bit of a metadata file gives a typed error, or
// faults, or the same, or a difference that shows; and never a panic.
func TestDamagedMetadata(t *testing.T) {
	for _, dir := range []string{"torch-2.6/small", "torch-2.15/small"} {
		data, err := os.ReadFile("testdata/" + dir + "/.metadata")
		if err != nil {
			t.Fatal(err)
		}
		intact, err := ReadMetadata(data)
		if err != nil {
			t.Fatal(err)
		}
		want := summary(intact)
		for n := range data {
			if m, err := ReadMetadata(data[:n]); err == nil {
				t.Errorf("%s cut to %d bytes is read: %s", dir, n, summary(m))
			} else {
				typed(t, err)
			}
		}
		outcomes := map[string]int{}
		for i := range data {
			for _, flip := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				broken := slices.Clone(data)
				broken[i] ^= flip
				m, err := ReadMetadata(broken)
				switch {
				case err != nil:
					typed(t, err)
					outcomes["error"]++
				case len(m.Faults) > 0:
					outcomes["faults"]++
				case summary(m) == want:
					outcomes["same"]++
				default:
					outcomes["visible"]++
				}
			}
		}
		t.Logf("%s, %d bytes: %v", dir, len(data), outcomes)
		if outcomes["error"] < 5*len(data) || outcomes["faults"] == 0 || outcomes["same"] == 0 || outcomes["visible"] == 0 {
			t.Errorf("outcomes %v", outcomes)
		}
	}
}

// typed fails a test on an error that is not for users.
func typed(t testing.TB, err error) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal || f.Message == "" {
		t.Errorf("an error without a kind: %v", err)
	}
}

// Boxes are found to overlap exactly if an element is in two of them.
func TestDisjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ndim := rapid.IntRange(1, 3).Draw(t, "dimensions")
		side := int64(rapid.IntRange(2, 12).Draw(t, "side"))
		var boxes []*Chunk
		var cut func(offset, shape []int64)
		cut = func(offset, shape []int64) { // into halves, again and again
			d := rapid.IntRange(0, ndim).Draw(t, "cut")
			if d == ndim || shape[d] < 2 {
				boxes = append(boxes, &Chunk{Offset: offset, Shape: shape})
				return
			}
			at := rapid.Int64Range(1, shape[d]-1).Draw(t, "at")
			low, high, rest := slices.Clone(shape), slices.Clone(shape), slices.Clone(offset)
			low[d], high[d], rest[d] = at, shape[d]-at, offset[d]+at
			cut(offset, low)
			cut(rest, high)
		}
		shape := slices.Repeat([]int64{side}, ndim)
		cut(make([]int64, ndim), shape)
		if rapid.Bool().Draw(t, "move one") {
			b := boxes[rapid.IntRange(0, len(boxes)-1).Draw(t, "which")]
			d := rapid.IntRange(0, ndim-1).Draw(t, "dimension")
			b.Offset = slices.Clone(b.Offset)
			b.Offset[d] = rapid.Int64Range(0, side-b.Shape[d]).Draw(t, "to")
		}
		taken, want := map[string]bool{}, true
		for _, b := range boxes {
			at := make([]int64, ndim)
			for n := range volume(b.Shape) {
				for d := range at {
					at[d] = b.Offset[d] + n%b.Shape[d]
					n /= b.Shape[d]
				}
				key := fmt.Sprint(at)
				want = want && !taken[key]
				taken[key] = true
			}
		}
		// Once as it is, and once with the pairs of few boxes left to the cuts.
		many := slices.Clone(boxes)
		for len(many) <= fewBoxes { // copies further along, so that the cuts are needed
			for _, b := range boxes {
				offset := slices.Clone(b.Offset)
				offset[0] += int64(len(many)) * side
				many = append(many, &Chunk{Offset: offset, Shape: b.Shape})
			}
		}
		for _, list := range [][]*Chunk{boxes, many} {
			if apart, ok := disjoint(list, 0); !ok || apart != want {
				t.Errorf("disjoint: %v, %v; want %v", apart, ok, want)
			}
		}
	})
}

func TestDisjointIsFast(t *testing.T) {
	var grid []*Chunk
	for i := range int64(300) {
		for j := range int64(300) {
			grid = append(grid, &Chunk{Offset: []int64{i, j}, Shape: []int64{1, 1}})
		}
	}
	if apart, ok := disjoint(grid, 0); !apart || !ok {
		t.Errorf("a grid: %v, %v", apart, ok)
	}
	var pile []*Chunk
	for i := range int64(20000) {
		pile = append(pile, &Chunk{Offset: []int64{i}, Shape: []int64{2}})
	}
	if _, ok := disjoint(pile, 0); ok {
		t.Error("a pile of 20000 boxes was compared each with each")
	}
}
