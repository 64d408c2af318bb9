package torchfile

import (
	"bytes"
	"io"
	"testing"

	"pgregory.net/rapid"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// made is an archive of an object in the byte order; storage 0 has the data.
func made(t testing.TB, order string, root pickle.Value, data string) []byte {
	t.Helper()
	text, err := pickle.Append(nil, root, pickle.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return zipOf(t, file{name: "a/data.pkl", data: string(text)}, file{name: "a/byteorder", data: order}, file{name: "a/version", data: "3\n"}, file{name: "a/data/0", data: data})
}

func storageID(class pickle.Global, location string, elements pickle.Value) *pickle.Persistent {
	return &pickle.Persistent{ID: pickle.NewTuple("storage", &class, "0", location, elements)}
}

var (
	floatClass = pickle.Global{Module: "torch", Name: "FloatStorage"}
	qintClass  = pickle.Global{Module: "torch", Name: "QInt8Storage"}
)

func tuple(n ...int64) pickle.Value { return pickle.IntTuple(n) }

// v2 and v3 are the calls that make a tensor.
func v2(id, start, shape, stride, grad pickle.Value, more ...pickle.Value) pickle.Value {
	return call("torch._utils", "_rebuild_tensor_v2", append([]pickle.Value{id, start, shape, stride, grad, orderedDict()}, more...)...)
}

func v3(id pickle.Value, dtype string, shape, stride pickle.Value, more ...pickle.Value) pickle.Value {
	return call("torch._utils", "_rebuild_tensor_v3", append([]pickle.Value{id, int64(0), shape, stride, false, orderedDict(), &pickle.Global{Module: "torch", Name: dtype}}, more...)...)
}

func TestTensorsThatContradictThemselves(t *testing.T) {
	float := func(n pickle.Value) pickle.Value { return storageID(floatClass, "cpu", n) }
	four := float(int64(4))
	long := make([]int64, mostDims+1)
	for _, c := range []struct {
		name string
		root pickle.Value
		kind fault.Kind
		text string
	}{
		{"good", v2(four, int64(1), tuple(3), tuple(1), false), 0, ""},
		{"good, in version 3", v3(storageID(untyped, "cpu", int64(16)), "uint16", tuple(8), tuple(1)), 0, ""},
		{"view beyond its storage", v2(four, int64(2), tuple(3), tuple(1), false), fault.Corrupt, "reaches beyond its storage of 4 elements"},
		{"strides beyond the storage", v2(four, int64(0), tuple(2, 2), tuple(3, 1), false), fault.Corrupt, "reaches beyond"},
		{"negative offset", v2(four, int64(-1), tuple(1), tuple(1), false), fault.Corrupt, "reaches beyond"},
		{"negative size", v2(four, int64(0), tuple(-1), tuple(1), false), fault.Corrupt, "is no tensor's"},
		{"sizes that overflow", v2(four, int64(0), tuple(1<<40, 1<<40), tuple(0, 0), false), fault.Corrupt, "is no tensor's"},
		{"strides that overflow", v2(four, int64(0), tuple(3, 3), tuple(1<<62, 1<<62), false), fault.Corrupt, "reaches beyond"},
		{"fewer strides than sizes", v2(four, int64(0), tuple(2, 2), tuple(1), false), fault.Corrupt, "1 strides for shape"},
		{"too many dimensions", v2(four, int64(0), tuple(long...), tuple(long...), false), fault.Corrupt, "expected a storage"},
		{"sizes in a list", v2(four, int64(0), pickle.NewList(int64(3)), tuple(1), false), fault.Corrupt, "expected a storage"},
		{"offset of a float", v2(four, 0.5, tuple(3), tuple(1), false), fault.Corrupt, "made of a storage of 4 elements of torch.FloatStorage, 0.5"},
		{"no storage", v2("0", int64(0), tuple(3), tuple(1), false), fault.Corrupt, `made of "0"`},
		{"too few arguments", call("torch._utils", "_rebuild_tensor_v2", four, int64(0)), fault.Corrupt, "has 2 arguments, expected 6 or 7"},
		{"too many arguments", v2(four, int64(0), tuple(3), tuple(1), false, nil, nil), fault.Corrupt, "has 8 arguments"},
		{"no type in version 3", call("torch._utils", "_rebuild_tensor_v3", four, int64(0), tuple(1), tuple(1), false, nil), fault.Corrupt, "has 6 arguments, expected 7 or 8"},
		{"another type than the storage's", v3(four, "int32", tuple(4), tuple(1)), fault.Corrupt, "a tensor of int32 is made of a storage of float32"},
		{"elements of another number", float(int64(5)), fault.Corrupt, "has 16 bytes, expected 5 elements of torch.FloatStorage"},
		{"elements that overflow", float(int64(1 << 61)), fault.Corrupt, "has 16 bytes"},
		{"negative elements", storageID(qintClass, "cpu", int64(-1)), fault.Corrupt, "has 16 bytes"},
		{"elements of None", float(nil), fault.Corrupt, "described by"},
		{"one storage of two classes", pickle.NewList(four, storageID(untyped, "cpu", int64(16))), fault.Corrupt, "and as 16 of torch.storage.UntypedStorage"},
		{"no such storage", &pickle.Persistent{ID: pickle.NewTuple("storage", &floatClass, "../0", "cpu", int64(4))}, fault.Corrupt, `no member "a/data/../0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(tensor.Memory(made(t, "little", c.root, "0123456789abcdef")), Options{})
			fails(t, err, c.kind, c.text)
		})
	}
}

func TestWhatIsNotUnderstoodStaysInert(t *testing.T) {
	four := storageID(floatClass, "cpu", int64(4))
	for name, c := range map[string]struct {
		root pickle.Value
		want string
	}{
		"on the meta device":         {v2(storageID(floatClass, "meta", int64(4)), int64(0), tuple(4), tuple(1), false), "an object of torch._utils._rebuild_tensor_v2"},
		"metadata of another kind":   {v2(four, int64(0), tuple(4), tuple(1), false, "conj"), "an object of torch._utils._rebuild_tensor_v2"},
		"metadata that says nothing": {v2(four, int64(0), tuple(4), tuple(1), false, pickle.NewDict("conj", false)), "a *tensor.Tensor"},
		"no metadata":                {v2(four, int64(0), tuple(4), tuple(1), false, nil), "a *tensor.Tensor"},
		"an unknown type":            {v3(storageID(untyped, "cpu", int64(16)), "float2", tuple(4), tuple(1)), "an object of torch._utils._rebuild_tensor_v3"},
		"a storage without a type":   {v2(storageID(untyped, "cpu", int64(16)), int64(0), tuple(4), tuple(1), false), "an object of torch._utils._rebuild_tensor_v2"},
		"a quantized storage":        {storageID(qintClass, "cpu", int64(16)), "a storage of 16 elements of torch.QInt8Storage"},
		"another persistent id":      {&pickle.Persistent{ID: pickle.NewTuple("module", "x")}, "a persistent id"},
		"a parameter of nothing":     {call("torch._utils", "_rebuild_parameter", nil, true, nil), "an object of torch._utils._rebuild_parameter"},
		"a parameter of one":         {call("torch._utils", "_rebuild_parameter", four), "an object of torch._utils._rebuild_parameter"},
		"a half DTensor": {call("torch._tensor", "_rebuild_from_type_v2", &pickle.Global{Module: "torch._utils", Name: "_rebuild_wrapper_subclass"},
			&pickle.Global{Module: "torch.distributed.tensor", Name: "DTensor"}, pickle.NewTuple(), nil), "an object of torch._tensor._rebuild_from_type_v2"},
		"a tensor of another function": {call("torch._tensor", "_rebuild_from_type_v2", &pickle.Global{Module: "os", Name: "system"},
			&pickle.Global{Module: "torch", Name: "Tensor"}, pickle.NewTuple("ls"), nil), "an object of torch._tensor._rebuild_from_type_v2"},
	} {
		t.Run(name, func(t *testing.T) {
			a := openBytes(t, made(t, "little", c.root, "0123456789abcdef"))
			if got := pickle.Describe(a.Root()); got != c.want {
				t.Errorf("it is %s, expected %s", got, c.want)
			}
			if a, err := New(a.Root(), WriteOptions{}); err != nil || a.Size() == 0 {
				t.Errorf("it is not carried: %v", err)
			}
		})
	}
}

func TestBigEndianStorages(t *testing.T) {
	raw := storageID(untyped, "cpu", int64(8))
	a := openBytes(t, made(t, "big", v3(raw, "uint16", tuple(4), tuple(1)), "abcdefgh"))
	if got, err := a.Root().(*tensor.Tensor).ReadAll(); err != nil || string(got) != "badcfehg" {
		t.Errorf("uint16: %q, %v", got, err)
	}
	a = openBytes(t, made(t, "big", v3(raw, "float8_e5m2", tuple(8), tuple(1)), "abcdefgh"))
	if got, err := a.Root().(*tensor.Tensor).ReadAll(); err != nil || string(got) != "abcdefgh" {
		t.Errorf("float8: %q, %v", got, err)
	}
	_, err := Open(tensor.Memory(made(t, "big", pickle.NewList(v3(raw, "uint16", tuple(4), tuple(1)), v3(raw, "uint32", tuple(2), tuple(1))), "abcdefgh")), Options{})
	fails(t, err, fault.Unsupported, "numbers of 2 bytes and of 4")
	a = openBytes(t, made(t, "big", raw, "abcdefgh"))
	_, err = a.Root().(*BareStorage).Data.ReadAt(make([]byte, 8), 0)
	fails(t, err, fault.Unsupported, "no known type")
	f, err := New(a.Root(), WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteTo(io.Discard)
	fails(t, err, fault.Unsupported, "no known type")
}

// Any range of a big-endian storage is that of the swapped whole.
func TestBigEndianStoragesReadAtAnyOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int64{2, 4, 8}).Draw(t, "width")
		data := rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, "data")
		for int64(len(data))%width != 0 {
			data = append(data, 0)
		}
		want := bytes.Clone(data)
		for i := int64(0); i < int64(len(want)); i += width {
			for j := range width / 2 {
				want[i+j], want[i+width-1-j] = want[i+width-1-j], want[i+j]
			}
		}
		archive, e := memberOf(&entry{name: "x", packed: int64(len(data)), size: int64(len(data))}, data)
		s := &swapped{&record{entry: e, archive: archive}, width}
		off := rapid.Int64Range(-1, s.Size()+1).Draw(t, "off")
		p := make([]byte, rapid.IntRange(1, 12).Draw(t, "n"))
		n, err := s.ReadAt(p, off)
		if off < 0 || off >= s.Size() {
			if n != 0 || err != io.EOF {
				t.Fatalf("outside: %d, %v", n, err)
			}
			return
		}
		if n != min(len(p), len(want)-int(off)) || !bytes.Equal(p[:n], want[off:][:n]) || (err == io.EOF) != (n < len(p)) {
			t.Fatalf("at %d: %q (%v), expected %q", off, p[:n], err, want[off:])
		}
	})
}

// Locations are where the tensor was, and do not matter.
func TestTensorsComeFromAnyDevice(t *testing.T) {
	a := openBytes(t, made(t, "little", v2(storageID(floatClass, "cuda:7", int64(2)), int64(0), tuple(2), tuple(1), false), "\x00\x00\x80\x3f\x00\x00\x00\x40"))
	if got, err := a.Root().(*tensor.Tensor).Float32s(); err != nil || got[0] != 1 || got[1] != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
