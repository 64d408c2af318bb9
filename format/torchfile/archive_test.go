package torchfile

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

const checkpoints = "../../testdata/checkpoints/"

// releases are the folders of archives that PyTorch wrote.
var releases = []string{"testdata/torch-2.6/", "testdata/torch-2.15/"}

func open(t testing.TB, path string) *Archive {
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

func openBytes(t testing.TB, data []byte) *Archive {
	t.Helper()
	a, err := Open(tensor.Memory(data), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// get is what stands under a key of the archive's dict.
func get(t testing.TB, a *Archive, key string) pickle.Value {
	t.Helper()
	d, ok := pickle.AsDict(a.Root())
	if !ok {
		t.Fatalf("the root is %s", pickle.Describe(a.Root()))
	}
	v, ok := d.Get(key)
	if !ok {
		t.Fatalf("there is no key %q", key)
	}
	return v
}

// want is what PyTorch says of a tensor.
type want struct {
	DType           string
	Shape           []int64
	Data            string
	Grad, Parameter bool
}

// expected are the tensors of every archive in a folder.
func expected(t testing.TB, folder string) map[string]map[string]want {
	t.Helper()
	var all map[string]map[string]want
	if err := json.Unmarshal(read(t, folder+"expected.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// said is what we say of a tensor.
func said(t testing.TB, x *tensor.Tensor) want {
	t.Helper()
	data, err := x.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return want{x.DType.String(), x.Shape, hex.EncodeToString(data), x.RequiresGrad, x.Parameter}
}

var interop = flag.String("interop", "", "keep the archives that load_archives.py loads with PyTorch in this folder")

// keep writes an archive to the folder of -interop, if it is given.
func keep(t testing.TB, name string, data []byte) {
	t.Helper()
	if *interop == "" {
		return
	}
	path := filepath.Join(*interop, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// Everything that PyTorch and other tools write reads as PyTorch reads it.
func TestArchivesReadAsInPyTorch(t *testing.T) {
	for _, folder := range releases {
		for name, tensors := range expected(t, folder) {
			t.Run(folder+name, func(t *testing.T) {
				a := open(t, folder+name)
				for key, want := range tensors {
					v := get(t, a, key)
					if d, ok := v.(*DTensor); ok {
						v = d.Local
					}
					x, ok := v.(*tensor.Tensor)
					if !ok {
						t.Errorf("%s is %s", key, pickle.Describe(v))
						continue
					}
					if got := said(t, x); !reflect.DeepEqual(got, want) {
						t.Errorf("%s is %+v, expected %+v", key, got, want)
					}
				}
				if err := a.Verify(); err != nil {
					t.Error(err)
				}
				written := write(t, a.Root())
				if again := openBytes(t, written); dump(t, again.Root()) != dump(t, a.Root()) {
					t.Error("written and opened again it is different")
				}
				keep(t, strings.TrimPrefix(folder, "testdata/")+name, written)
			})
		}
	}
}

func TestWhatAnArchiveSaysOfItself(t *testing.T) {
	for _, c := range []struct {
		file   string
		want   Archive
		status string // part of the only note
	}{
		{"torch-2.6/views.pt", Archive{Version: 3, Prefix: "views", ByteOrder: "little"}, ""},
		{"torch-2.15/views.pt", Archive{Version: 3, Prefix: "views", ByteOrder: "little", FormatVersion: "1", StorageAlignment: 64}, ""},
		{"torch-2.6/big-endian.pt", Archive{Version: 3, Prefix: "archive", ByteOrder: "big"}, ""},
		{"torch-2.15/other-prefix.pt", Archive{Version: 3, Prefix: "epoch 3 (best)", ByteOrder: "little", FormatVersion: "1", StorageAlignment: 64}, ""},
		{"torch-2.6/data-version.pt", Archive{Version: 3, Prefix: "archive"}, "no byteorder member"},
		{"torch-2.6/objects.pt", Archive{Version: 3, Prefix: "objects", ByteOrder: "little"}, "attributes of 2 tensors are not carried"},
	} {
		a := open(t, "testdata/"+c.file)
		notes := strings.Join(a.Notes, "; ")
		if c.status == "" && notes != "" || !strings.Contains(notes, c.status) {
			t.Errorf("%s: notes %q, expected %q", c.file, notes, c.status)
		}
		c.want.root, c.want.records, c.want.Notes = a.root, a.records, a.Notes
		if !reflect.DeepEqual(*a, c.want) {
			t.Errorf("%s: %+v, expected %+v", c.file, *a, c.want)
		}
	}
}

// Every archive of every real checkpoint opens, and so do those within.
func TestRealCheckpointsOpen(t *testing.T) {
	files, err := filepath.Glob(checkpoints + "*/*.pt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d checkpoints found: %v", len(files), err)
	}
	nested := 0
	for _, file := range files {
		a := open(t, file)
		all := tensors(a.Root())
		if len(all) == 0 {
			t.Errorf("%s holds no tensors", file)
		}
		for _, x := range all {
			if err := x.Validate(); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if _, err := x.ReadAll(); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if x.DType != tensor.Uint8 || len(x.Shape) != 1 {
				continue
			}
			inner, err := Open(x.AsStorage(), Options{})
			if err != nil {
				continue // indices of momentum are uint8 too
			}
			nested++
			for _, y := range tensors(inner.Root()) {
				if _, err := y.ReadAll(); err != nil {
					t.Errorf("%s, inside: %v", file, err)
				}
			}
			if err := inner.Verify(); err != nil {
				t.Errorf("%s, inside: %v", file, err)
			}
		}
		if err := a.Verify(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if nested < 40 {
		t.Errorf("%d archives within archives, expected the payloads of all ranks", nested)
	}
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

// What strides over a storage cannot tell stays an object, which an error can
// name, and is written as it was.
func TestOtherTensorsStayObjects(t *testing.T) {
	for _, folder := range releases {
		a := open(t, folder+"objects.pt")
		for key, want := range map[string]string{
			"conjugated":   "an object of torch._utils._rebuild_tensor_v2",
			"negated":      "an object of torch._utils._rebuild_tensor_v2",
			"sparse":       "an object of torch._utils._rebuild_sparse_tensor",
			"quantized":    "an object of torch._utils._rebuild_qtensor",
			"meta":         "an object of torch._utils._rebuild_meta_tensor_no_storage",
			"half_complex": "an object of torch._utils._rebuild_tensor_v3",
			"subclass":     "an object of torch._tensor._rebuild_from_type_v2",
			"size":         "an object of torch.Size",
			"device":       "an object of torch.device",
			"dtype":        "torch.float16",
			"raw":          "bytes",
		} {
			if got := pickle.Describe(get(t, a, key)); got != want {
				t.Errorf("%s%s is %s, expected %s", folder, key, got, want)
			}
		}
		for key, want := range map[string]string{
			"storage": "a storage of 4 elements of torch.ShortStorage",
			"untyped": "a storage of 4 elements of torch.storage.UntypedStorage",
		} {
			s, ok := get(t, a, key).(*BareStorage)
			if !ok || s.Describe() != want || s.Location != "cpu" {
				t.Errorf("%s%s is %v, expected %s", folder, key, s, want)
			}
		}
		if get(t, a, "parameter") != get(t, a, "parameter_again") {
			t.Error("one parameter in two places became two")
		}
	}
}

func TestTensorsShareStorage(t *testing.T) {
	a := open(t, releases[0]+"views.pt")
	at := func(key string) *tensor.Tensor { return get(t, a, key).(*tensor.Tensor) }
	if at("tied_a") != at("tied_b") {
		t.Error("one tensor in two places became two")
	}
	for _, pair := range [][2]string{{"tied_a", "tied_view"}, {"all", "offset"}, {"all", "columns"}, {"all", "strided"}} {
		if x, y := at(pair[0]).Chunks[0].Storage, at(pair[1]).Chunks[0].Storage; x != y {
			t.Errorf("%v do not share a storage", pair)
		}
	}
	if at("all").Chunks[0].Storage == at("alone").Chunks[0].Storage {
		t.Error("two storages are one")
	}
}

func TestDTensors(t *testing.T) {
	for _, folder := range releases {
		a := open(t, folder+"dtensor.pt")
		for key, want := range map[string]struct {
			words           string
			grad, parameter bool
		}{
			"rows":       {"a DTensor float32 [5 3], placed as [Shard(0)], of which the file has [2 3]", false, false},
			"parameter":  {"a DTensor float32 [5 3], placed as [Shard(0)], of which the file has [2 3]", true, true},
			"columns":    {"a DTensor float32 [5 3], placed as [Shard(1)], of which the file has [5 1]", false, false},
			"everywhere": {"a DTensor float32 [5 3], placed as [Replicate()], of which the file has [5 3]", false, false},
			"padded":     {"a DTensor float32 [5], placed as [Shard(0)], of which the file has [2]", false, false},
		} {
			d, ok := get(t, a, key).(*DTensor)
			if !ok {
				t.Errorf("%s%s is %s", folder, key, pickle.Describe(get(t, a, key)))
				continue
			}
			if got := d.Describe(); got != want.words || d.RequiresGrad != want.grad || d.Parameter != want.parameter {
				t.Errorf("%s%s is %s, requires_grad %v, parameter %v; expected %+v", folder, key, got, d.RequiresGrad, d.Parameter, want)
			}
			if n := d.Local.Chunks[0].Storage.Size(); key == "rows" && n != 36 {
				t.Errorf("%s%s: the local storage has %d bytes, expected 36: it is padded", folder, key, n)
			}
		}
	}
}

func TestArchivesWithinArchives(t *testing.T) {
	a := open(t, releases[0]+"nested.pt")
	inner, err := Open(get(t, a, "payload").(*tensor.Tensor).AsStorage(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	index, scale := get(t, inner, "index").(*tensor.Tensor), get(t, inner, "scale").(*tensor.Tensor)
	if got := said(t, index); got.Data != "000102030405" {
		t.Errorf("index is %v", got)
	}
	if got, err := scale.Float32s(); err != nil || got[1] != 1 {
		t.Errorf("scale is %v, %v", got, err)
	}
	if err := inner.Verify(); err != nil {
		t.Error(err)
	}
	if err := a.Verify(); err != nil {
		t.Error(err)
	}
}

// An archive may begin anywhere in a larger file, and have anything around it.
func TestArchivesOpenAtAnyOffset(t *testing.T) {
	data := read(t, releases[0]+"views.pt")
	around := append(append([]byte("PK\x03\x04 another"), data...), read(t, releases[0]+"many.pt")...)
	a, err := Open(&tensor.Section{R: tensor.Memory(around), Off: 12, N: int64(len(data))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := dump(t, a.Root()), dump(t, openBytes(t, data).Root()); got != want {
		t.Errorf("it is\n%s\nexpected\n%s", got, want)
	}
}

func TestFilesOfOtherKindsAreNamed(t *testing.T) {
	tar := make([]byte, 512)
	copy(tar[257:], "ustar")
	for name, c := range map[string]struct {
		data []byte
		kind fault.Kind
		text string
	}{
		"empty":                {nil, fault.Incomplete, "the file is empty"},
		"never written":        {make([]byte, 4096), fault.Corrupt, "never written"},
		"before PyTorch 1.6":   {read(t, releases[0]+"legacy.pt"), fault.Unsupported, "from before PyTorch 1.6"},
		"TorchScript":          {read(t, releases[1]+"torchscript.pt"), fault.Unsupported, "a TorchScript module"},
		"tar":                  {tar, fault.Unsupported, "a tar file"},
		"bare pickle":          {[]byte("\x80\x04K\x05."), fault.Unsupported, "a bare pickle"},
		"safetensors":          {[]byte("\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":           }"), fault.Unsupported, "a safetensors file"},
		"empty zip":            {append([]byte("PK\x05\x06"), make([]byte, 18)...), fault.Unsupported, "an empty zip file"},
		"Git LFS":              {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), fault.Unsupported, "git lfs pull"},
		"web page":             {[]byte("<!DOCTYPE html>"), fault.Unsupported, "a web page"},
		"gzip":                 {[]byte("\x1f\x8b\x08\x00"), fault.Unsupported, "unpack it first"},
		"anything":             {[]byte("hello"), fault.Unsupported, "begins with 68 65 6c 6c"},
		"one byte":             {[]byte("P"), fault.Unsupported, "begins with 50"},
		"zip without a folder": {zipOf(t, file{name: "data.pkl", data: "\x80\x02N."}), fault.Unsupported, "is in no folder"},
		"two folders":          {zipOf(t, file{name: "a/data.pkl", data: "\x80\x02N."}, file{name: "b/version", data: "3"}), fault.Corrupt, "two folders"},
		"two folders of files": {zipOf(t, file{name: "a/x", data: "1"}, file{name: "b/y", data: "3"}), fault.Unsupported, "two folders"},
		"without data.pkl":     {zipOf(t, file{name: "a/version", data: "3"}), fault.Unsupported, "no data.pkl"},
		"NumPy archive":        {zipOf(t, file{name: "weight.npy", data: "x"}), fault.Unsupported, "a NumPy archive"},
		"torch.export":         {zipOf(t, file{name: "a/archive_format", data: "pt2"}), fault.Unsupported, "a torch.export program"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tensor.Memory(c.data), Options{})
			fails(t, err, c.kind, c.text)
		})
	}
}

// fails checks an error's kind and words; no words mean that there must be none.
func fails(t testing.TB, err error, kind fault.Kind, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("got %v, expected no error", err)
	case text != "" && (err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), text)):
		t.Errorf("got %v, expected %v with %q", err, kind, text)
	}
}
