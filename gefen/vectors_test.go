package gefen

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
)

// array is a tensor of a vector file: little-endian bytes in hexadecimal, in C
// order. bfloat16 is its 16-bit pattern.
type array struct {
	Dtype string `json:"dtype"`
	Shape []int  `json:"shape"`
	Hex   string `json:"hex"`
}

// bytes decodes the array and fails the test unless it has one of the dtypes.
func (a array) bytes(t testing.TB, width int, dtypes ...string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(a.Hex)
	if err != nil {
		t.Fatalf("array of %s: %v", a.Dtype, err)
	}
	n := width
	for _, d := range a.Shape {
		n *= d
	}
	for _, d := range dtypes {
		if a.Dtype == d && len(raw) == n {
			return raw
		}
	}
	t.Fatalf("array is %s of shape %v and %d bytes, expected %v of %d bytes", a.Dtype, a.Shape, len(raw), dtypes, n)
	return nil
}

func (a array) uint8s(t testing.TB) []uint8 {
	t.Helper()
	return a.bytes(t, 1, "uint8")
}

func (a array) uint16s(t testing.TB) []uint16 {
	t.Helper()
	raw := a.bytes(t, 2, "bf16", "bfloat16")
	out := make([]uint16, len(raw)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return out
}

// float32s decodes float32, and bfloat16 widened.
func (a array) float32s(t testing.TB) []float32 {
	t.Helper()
	if a.Dtype != "float32" {
		half := a.uint16s(t)
		out := make([]float32, len(half))
		for i, h := range half {
			out[i] = math.Float32frombits(uint32(h) << 16)
		}
		return out
	}
	raw := a.bytes(t, 4, "float32")
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func (a array) float64s(t testing.TB) []float64 {
	t.Helper()
	raw := a.bytes(t, 8, "float64")
	out := make([]float64, len(raw)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return out
}

func (a array) codebook(t testing.TB) *Codebook {
	t.Helper()
	c := Codebook(a.float32s(t))
	return &c
}

// readGzipJSON decodes a compressed JSON file of testdata into v.
func readGzipJSON(t testing.TB, name string, v any) {
	t.Helper()
	if err := decodeGzipJSON("testdata/"+name, v); err != nil {
		t.Fatal(err)
	}
}

func decodeGzipJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := json.NewDecoder(z).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return z.Close()
}

// vectorFile is testdata/numerics-vectors.json.gz: golden inputs and outputs of
// Gefen-X on CPU. The lists named for what they test were made by one program, those
// under gefen_spec, told apart by their kind, by another.
type vectorFile struct {
	Period   []json.RawMessage `json:"period"`
	Codebook []json.RawMessage `json:"codebook"`
	Nearest  []json.RawMessage `json:"nearest"`
	Step     []json.RawMessage `json:"step"`
	Spec     struct {
		Vectors []json.RawMessage `json:"vectors"`
	} `json:"gefen_spec"`
}

var goldenFile = sync.OnceValues(func() (*vectorFile, error) {
	f := new(vectorFile)
	return f, decodeGzipJSON("testdata/numerics-vectors.json.gz", f)
})

// golden returns the vectors of the program that filed them by name: kind is
// "period", "codebook", "nearest" or "step".
func golden[T any](t testing.TB, kind string) []T {
	t.Helper()
	f := openGolden(t)
	lists := map[string][]json.RawMessage{"period": f.Period, "codebook": f.Codebook, "nearest": f.Nearest, "step": f.Step}
	return decodeVectors[T](t, kind, lists[kind])
}

// goldenSpec returns the vectors under gefen_spec of one kind: "numpy_sum",
// "period", "codebook", "nearest", "mean_sq", "step" or "reblock".
func goldenSpec[T any](t testing.TB, kind string) []T {
	t.Helper()
	var of []json.RawMessage
	for _, raw := range openGolden(t).Spec.Vectors {
		var v struct{ Kind string }
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		if v.Kind == kind {
			of = append(of, raw)
		}
	}
	return decodeVectors[T](t, kind, of)
}

func openGolden(t testing.TB) *vectorFile {
	t.Helper()
	f, err := goldenFile()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func decodeVectors[T any](t testing.TB, kind string, raws []json.RawMessage) []T {
	t.Helper()
	if len(raws) == 0 {
		t.Fatalf("no vectors of kind %q", kind)
	}
	out := make([]T, len(raws))
	for i, raw := range raws {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			t.Fatalf("vector %d of kind %q: %v", i, kind, err)
		}
	}
	return out
}
