package dcp

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// edit changes the metadata of a directory in memory.
func edit(t *testing.T, m fstest.MapFS, change func(*Metadata)) {
	t.Helper()
	md, err := ReadMetadata(m[metadataName].Data)
	if err != nil {
		t.Fatal(err)
	}
	change(md)
	var out bytes.Buffer
	if err := emit(&out, md); err != nil {
		t.Fatal(err)
	}
	m[metadataName] = &fstest.MapFile{Data: out.Bytes()}
}

// replaceText changes a text in .metadata for one of the same length.
func replaceText(t *testing.T, m fstest.MapFS, old, new string) {
	t.Helper()
	data := m[metadataName].Data
	if len(old) != len(new) || !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%q cannot be replaced by %q", old, new)
	}
	m[metadataName].Data = bytes.ReplaceAll(data, []byte(old), []byte(new))
}

// everything reads every leaf of a directory and returns the first error.
func everything(d *Directory) (err error) {
	tree.Walk(d.Root(), func(path tree.Path, v pickle.Value) bool {
		var e error
		switch v := v.(type) {
		case *tensor.Tensor:
			_, e = v.Data().WriteTo(&bytes.Buffer{})
		case *tree.Lazy:
			_, e = v.Value()
		}
		if err == nil {
			err = e
		}
		return true
	})
	return err
}

// Where a fault shows.
const (
	atOpen = iota // Open gives it
	inList        // it is in Directory.Faults
	onRead        // an item that is read gives it
)

func TestFaults(t *testing.T) {
	remove := func(names ...string) func(*testing.T, fstest.MapFS) {
		return func(_ *testing.T, m fstest.MapFS) {
			for _, name := range names {
				delete(m, name)
			}
		}
	}
	only := func(names ...string) func(*testing.T, fstest.MapFS) {
		return func(_ *testing.T, m fstest.MapFS) {
			clear(m)
			for _, name := range names {
				m[name] = &fstest.MapFile{Data: []byte("x")}
			}
		}
	}
	metadata := func(change func(*Metadata)) func(*testing.T, fstest.MapFS) {
		return func(t *testing.T, m fstest.MapFS) { edit(t, m, change) }
	}
	chunks := func(fqn string, change func([]Chunk)) func(*testing.T, fstest.MapFS) {
		return metadata(func(m *Metadata) { change(m.Find(fqn).Chunks) })
	}
	text := func(old, new string) func(*testing.T, fstest.MapFS) {
		return func(t *testing.T, m fstest.MapFS) { replaceText(t, m, old, new) }
	}
	blob := func(old, new string) func(*testing.T, fstest.MapFS) {
		return func(t *testing.T, m fstest.MapFS) {
			f := m["__0_0.distcp"]
			if !bytes.Contains(f.Data, []byte(old)) {
				t.Fatalf("the blob has no %s", old)
			}
			f.Data = bytes.Replace(f.Data, []byte(old), []byte(new), 1)
		}
	}
	const torch = "torch-2.15/sharded-2"
	for _, c := range []struct {
		name   string
		dir    string
		change func(*testing.T, fstest.MapFS)
		where  int
		kind   fault.Kind
		want   string // in the message
	}{
		{"empty directory", torch, only(), atOpen, fault.Incomplete, "mem: the directory is empty"},
		{"no metadata", torch, remove(metadataName), atOpen, fault.Incomplete, "there is no .metadata; found .distcp files of ranks 0 and 1 only"},
		{"only the temporary metadata", torch, func(_ *testing.T, m fstest.MapFS) { m[temporaryName] = m[metadataName]; delete(m, metadataName) },
			atOpen, fault.Incomplete, "there is no .metadata, only .metadata.tmp"},
		{"empty metadata", torch, func(_ *testing.T, m fstest.MapFS) { m[metadataName].Data = nil }, atOpen, fault.Incomplete, "mem/.metadata: the file is empty"},
		{"metadata cut short", torch, func(_ *testing.T, m fstest.MapFS) { m[metadataName].Data = m[metadataName].Data[:1000] }, atOpen, fault.Corrupt, "mem/.metadata: "},
		{"metadata is a directory", torch, func(_ *testing.T, m fstest.MapFS) { m[metadataName] = &fstest.MapFile{Mode: fs.ModeDir} }, atOpen, fault.Corrupt, "it is no regular file"},
		{"metadata is something else", torch, func(_ *testing.T, m fstest.MapFS) { m[metadataName].Data = []byte("\x80\x02K\x05.") }, atOpen, fault.Corrupt, "the pickle is 5, not the Metadata"},
		{"a call of os.system", torch, func(_ *testing.T, m fstest.MapFS) {
			m[metadataName].Data = []byte("\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.")
		}, atOpen, fault.Unsupported, "the file would call os.system"},

		{"HuggingFace storage", torch, only("model.safetensors.index.json", "model-00001-of-00001.safetensors"), atOpen, fault.Unsupported, "HuggingFace safetensors directory"},
		{"Megatron", torch, only("latest_checkpointed_iteration.txt", "iter_0000010"), atOpen, fault.Unsupported, "a Megatron checkpoint"},
		{"DeepSpeed", torch, only("zero_pp_rank_0_mp_rank_00_optim_states.pt"), atOpen, fault.Unsupported, "a DeepSpeed ZeRO checkpoint"},
		{"torchsnapshot", torch, only(".snapshot_metadata"), atOpen, fault.Unsupported, "a torchsnapshot directory"},
		{"torch.save files", torch, only("optimizer.pt"), atOpen, fault.Unsupported, "a directory of torch.save files"},
		{"a checkpoint further down", torch, only("optimizer_0/.metadata", "optimizer_0/__0_0.distcp", "config.json"), atOpen, fault.Usage, "but optimizer_0 in it is one"},
		{"something else", torch, only("README.md"), atOpen, fault.Unsupported, "neither .metadata nor a .distcp file"},

		{"missing file", torch, remove("__1_0.distcp"), inList, fault.Incomplete, "mem/__1_0.distcp: 7 items: the file is missing"},
		{"file cut short", torch, func(_ *testing.T, m fstest.MapFS) { f := m["__1_0.distcp"]; f.Data = f.Data[:len(f.Data)-1] }, inList, fault.Incomplete,
			"mem/__1_0.distcp: plain: the file has 11294 bytes and needs 11295: it is cut short"},
		{"empty file", torch, func(_ *testing.T, m fstest.MapFS) { m["__0_0.distcp"].Data = nil }, inList, fault.Incomplete, "the file is empty and needs"},
		{"file is a pipe", torch, func(_ *testing.T, m fstest.MapFS) { m["__0_0.distcp"].Mode = fs.ModeNamedPipe }, inList, fault.Corrupt, "it is no regular file"},
		{"reading from a missing file", torch, remove("__0_0.distcp"), onRead, fault.Incomplete, "mem/__0_0.distcp: "},
		{"absolute path", torch, text("__1_0.distcp", "/etc/timezon"), inList, fault.Corrupt, `"/etc/timezon", which does not lie in the directory`},
		{"path that climbs", torch, text("__1_0.distcp", "../../passwd"), inList, fault.Corrupt, "does not lie in the directory"},
		{"path with backslashes", torch, text("__1_0.distcp", `..\..\passwd`), inList, fault.Corrupt, "does not lie in the directory"},
		{"path of the directory", torch, metadata(func(m *Metadata) { m.Files[1] = "." }), inList, fault.Corrupt, "does not lie in the directory"},

		{"items overlap", torch, chunks("a", func(c []Chunk) { c[0].Place.Offset-- }), inList, fault.Corrupt, "overlap those of"},
		{"items at one place", torch, chunks("plain2", func(c []Chunk) { c[0].Place.Offset = 2522 }), inList, fault.Corrupt, "overlap those of"},
		{"item longer than any file", torch, chunks("a", func(c []Chunk) { c[0].Place.Length = 1<<63 - 1 }), inList, fault.Corrupt, "end beyond any file"},
		{"item too short", torch, chunks("a", func(c []Chunk) { c[0].Place.Length-- }), onRead, fault.Corrupt, "mem/__0_0.distcp: a: "},

		{"chunks overlap", torch, chunks("a", func(c []Chunk) { c[1].Offset[0], c[1].Shape[0] = 2, 3 }), inList, fault.Corrupt, "a: its 2 chunks overlap"},
		{"chunks leave a hole", torch, chunks("a", func(c []Chunk) { c[1].Offset[0], c[1].Shape[0] = 4, 1 }), inList, fault.Incomplete, "a: its chunks hold 12 of 15 elements"},
		{"chunk outside the tensor", torch, chunks("a", func(c []Chunk) { c[1].Offset[0] = 4 }), inList, fault.Corrupt, "does not lie within the tensor's shape [5 3]"},
		{"chunk of other dimensions", torch, chunks("a", func(c []Chunk) { c[1].Offset, c[1].Shape = []int64{3}, []int64{2} }), inList, fault.Corrupt, "does not lie within the tensor's shape [5 3]"},
		{"shape beyond any file", torch, metadata(func(m *Metadata) { m.Find("a").Shape = []int64{1 << 40, 1 << 40} }), inList, fault.Corrupt, "a: a tensor of shape [1099511627776 1099511627776] is larger than any file"},
		{"reading a tensor with a hole", torch, chunks("a", func(c []Chunk) { c[1].Offset[0], c[1].Shape[0] = 4, 1 }), onRead, fault.Incomplete, "12 of 15 elements"},
		{"entry of another chunk", torch, metadata(func(m *Metadata) { m.Find("a").Chunks = m.Find("a").Chunks[:1] }), inList, fault.Incomplete, "9 of 15 elements"},

		{"dtype differs in the item", torch, metadata(func(m *Metadata) { m.Find("a").DType = tensor.Int32 }), onRead, fault.Corrupt,
			"the item holds a tensor float32 [3 3], and the metadata says a tensor int32 [3 3]"},
		{"shape differs in the item", torch, metadata(func(m *Metadata) {
			a := m.Find("plain2")
			a.Shape, a.Chunks[0].Shape = []int64{9}, []int64{9}
		}), onRead, fault.Corrupt, "the item holds a tensor float32 [10], and the metadata says a tensor float32 [9]"},
		{"a tensor where bytes should be", torch, metadata(func(m *Metadata) {
			m.Find("n").Chunks[0].Place, m.Find("step").Chunks[0].Place = m.Find("step").Chunks[0].Place, m.Find("n").Chunks[0].Place
		}),
			onRead, fault.Corrupt, "the item holds 5, and the metadata says a tensor"},
		{"unknown transform", torch, metadata(func(m *Metadata) {
			m.transforms = append(m.transforms, []string{"stream.rot13/1"})
			m.Find("a").Chunks[0].Place.transforms = 1
		}), onRead, fault.Unsupported, `transformed by "stream.rot13/1", and only stream.zstd/1 is read`},
		{"zstd of a later version", "torch-2.15/zstd", text("stream.zstd/1", "stream.zstd/2"), onRead, fault.Unsupported, "only stream.zstd/1 is read"},
		{"damaged zstd", "torch-2.15/zstd", func(t *testing.T, m fstest.MapFS) { clear(m["__0_0.distcp"].Data[4:40]) }, onRead, fault.Corrupt, "zstd stream is damaged"},
		{"zstd that is too large", "torch-2.15/zstd", metadata(func(m *Metadata) {
			z := m.Find("zeros")
			z.Shape, z.Chunks[0].Shape = []int64{100}, []int64{100}
		}), onRead, fault.Corrupt, "it decompresses to more than 65936 bytes"},
		{"zstd spooled to a file", "torch-2.15/zstd", metadata(func(m *Metadata) {
			z := m.Find("zeros")
			z.Shape, z.Chunks[0].Shape = []int64{40000}, []int64{40000}
		}), onRead, fault.Corrupt, "the item holds a tensor float32 [50000]"},

		{"safetensors: other name", "torch-2.15/safetensors", blob(`"m":{`, `"q":{`), onRead, fault.Corrupt, "has no tensor of this name"},
		{"safetensors: other offset", "torch-2.15/safetensors", blob(`\"m\": {\"saved_offsets\": [0, 0]}`, `\"m\": {\"saved_offsets\": [1, 0]}`),
			onRead, fault.Corrupt, "the safetensors blob has the chunk at [1 0] under this name, not the one at [0 0]"},
		{"safetensors: other dtype", "torch-2.15/safetensors", blob(`"m":{"dtype":"F32"`, `"m":{"dtype":"Q32"`), onRead, fault.Unsupported, `its dtype in the safetensors blob is "Q32"`},
		{"safetensors: other shape", "torch-2.15/safetensors", blob(`"shape":[2,3]`, `"shape":[2,2]`), onRead, fault.Corrupt, "does not fill bytes"},
		{"neither zip nor safetensors", torch, func(_ *testing.T, m fstest.MapFS) { m["__0_0.distcp"].Data[2522] = 'X' }, onRead, fault.Corrupt,
			"mem/__0_0.distcp: a: at byte 2522: neither a torch.save archive nor a safetensors blob begins here"},
		{"safetensors: torn header", "torch-2.15/safetensors-1", func(t *testing.T, m fstest.MapFS) { f := m["__0_0.distcp"]; f.Data = f.Data[:100] }, onRead, fault.Incomplete, "and the file ends after"},

		{"path that does not spell the name", torch, metadata(func(m *Metadata) { m.parts[m.steps(m.Find("a"))[0]] = "b" }), inList, fault.Corrupt, "a: its path in planner_data does not spell its name"},
		{"position beyond the list", "torch-2.15/tree", text("mixed.3.0", "mixed.3.9"), inList, fault.Corrupt, "does not spell its name"},

		{"rank-local: rank 0 is missing", "torch-2.15/rank-local-2", remove("__0.metadata", "__0_0.distcp"), inList, fault.Incomplete, "there are metadata files of rank 1, and none of rank 0"},
		{"rank-local: rank 1 is missing", "torch-2.15/rank-local-2", remove("__1.metadata", "__1_0.distcp"), inList, fault.Incomplete, "its chunks hold 9 of 15 elements"},
		{"rank-local: the ranks disagree", "torch-2.15/rank-local-2", func(t *testing.T, m fstest.MapFS) {
			m["__1.metadata"].Data = bytes.Replace(m["__1.metadata"].Data, []byte("uint8"), []byte("int16"), 1)
		}, atOpen, fault.Corrupt, "col: the ranks disagree on it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := load(t, c.dir)
			c.change(t, m)
			d, err := OpenFS(m, "mem")
			if err == nil {
				defer d.Close()
				switch c.where {
				case inList:
					if len(d.Faults) == 0 {
						t.Fatal("there are no faults")
					}
					err = d.Faults[0]
				case onRead:
					err = everything(d)
				}
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

func TestUnread(t *testing.T) {
	m := load(t, "torch-2.15/sharded-2")
	for _, name := range []string{"__2_0.distcp", temporaryName, "__7.metadata"} {
		m[name] = &fstest.MapFile{Data: []byte("left over")}
	}
	m["__3_0.distcp"] = &fstest.MapFile{}                      // what a rank without items leaves
	m["config.json"] = &fstest.MapFile{Data: []byte("{}")}     // no part of a checkpoint
	m["sub/__0_0.distcp"] = &fstest.MapFile{Data: []byte("x")} // another directory
	d, err := OpenFS(m, "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := strings.Join(d.Unread, " "); got != ".metadata.tmp __2_0.distcp __7.metadata" {
		t.Errorf("unread: %s", got)
	}
	if len(d.Faults) > 0 || !strings.Contains(strings.Join(d.Notes, " "), "another save into this directory was cut short") {
		t.Errorf("faults %v, notes %v", d.Faults, d.Notes)
	}
}

// Symbolic links may lead around within a directory, and nowhere else.
func TestSymbolicLinks(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	for name, f := range load(t, "torch-2.15/sharded-2") {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	item := filepath.Join(dir, "__1_0.distcp")
	if err := os.Rename(item, filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("moved", item); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil || len(d.Faults) > 0 {
		t.Fatal(err, d.Faults)
	}
	if err := everything(d); err != nil {
		t.Error(err)
	}
	d.Close()

	for _, c := range []struct{ target, want string }{
		{filepath.Join(outside, "moved"), "a symbolic link out of the directory"},
		{"../" + filepath.Base(outside) + "/moved", "a symbolic link out of the directory"},
		{"nowhere", "a symbolic link to nothing"},
	} {
		if err := os.WriteFile(filepath.Join(outside, "moved"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		os.Remove(item)
		if err := os.Symlink(c.target, item); err != nil {
			t.Fatal(err)
		}
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Faults) != 1 || !strings.Contains(d.Faults[0].Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.target, d.Faults, c.want)
		}
		if err := everything(d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: read with %v", c.target, err)
		}
		d.Close()
	}
}

// A file that changes while it is read is noticed when it is opened again.
func TestFileChanges(t *testing.T) {
	dir := t.TempDir()
	for name, f := range load(t, "torch-2.15/small") {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(filepath.Join(dir, "__0_0.distcp"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := everything(d); fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), "5 bytes now") {
		t.Errorf("got %v", err)
	}
}

func TestOpenWhatIsNoDirectory(t *testing.T) {
	for _, path := range []string{"testdata/nowhere", "testdata/make_directories.py"} {
		if _, err := Open(path); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
