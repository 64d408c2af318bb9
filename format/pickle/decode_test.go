package pickle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gefenckpt/internal/fault"
)

// load reads a file of testdata.
func load(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// files are those that match a pattern, of which there must be some.
func files(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	return found
}

func mustDecode(t testing.TB, data []byte) Value {
	t.Helper()
	v, err := Decode(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustAppend(t testing.TB, v Value, protocol int) []byte {
	t.Helper()
	data, err := Append(nil, v, EncodeOptions{Protocol: protocol})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Every pickle that CPython wrote holds what its generator says.
func TestDecodeWhatPythonWrites(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range files(t, "testdata/python/*.pickle") {
		name, protocol, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".pickle"), ".")
		if name == "keywords" && (protocol == "2" || protocol == "3") {
			continue // see TestCallsOfObjectsAreRefused
		}
		seen[name] = true
		t.Run(name+"."+protocol, func(t *testing.T) {
			want, got := cases[name](), mustDecode(t, load(t, file))
			if !Equal(want, got) {
				t.Errorf("read %s, which differs", Describe(got))
			}
			if name != "raw" { // where equal bytes may be shared or not
				if w, g := distinct(want), distinct(got); w != g {
					t.Errorf("%d containers, want %d", g, w)
				}
			}
		})
	}
	for name := range cases {
		if !seen[name] {
			t.Errorf("no pickle has the case %s", name)
		}
	}
}

// Protocols 2 and 3 write __new__ with keywords as a call of a functools.partial,
// which nothing in this package can stand for.
func TestCallsOfObjectsAreRefused(t *testing.T) {
	for _, protocol := range []string{"2", "3"} {
		_, err := Decode(load(t, "testdata/python/keywords."+protocol+".pickle"), Options{})
		f := fault.Of(err)
		if f.Kind != fault.Unsupported || f.Offset < 0 || !strings.Contains(f.Message, "calls an object of functools.partial") {
			t.Errorf("protocol %s: %v", protocol, err)
		}
	}
}

// Every pickle that a real checkpoint holds is read, written and read again.
func TestRealPicklesRoundTrip(t *testing.T) {
	for _, file := range files(t, "testdata/real/*") {
		v := mustDecode(t, load(t, file))
		for _, protocol := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s.%d", filepath.Base(file), protocol), func(t *testing.T) {
				w := mustDecode(t, mustAppend(t, v, protocol))
				if !Equal(v, w) {
					t.Error("the value read back differs")
				}
				if a, b := distinct(v), distinct(w); a != b {
					t.Errorf("%d containers read back, wrote %d", b, a)
				}
			})
		}
	}
}

// What a real payload holds is where it belongs, not only equal to itself.
func TestRealPickleIsUnderstood(t *testing.T) {
	var storages int
	v, err := Decode(load(t, "testdata/real/plain-2-full.pkl"), Options{
		Persistent: func(id Value, _ int64) (Value, error) {
			items, ok := Sequence(id)
			if !ok || len(items) != 5 || items[0] != "storage" {
				t.Errorf("persistent id %s", Describe(id))
			}
			storages++
			return "storage " + items[2].(string), nil
		},
		Reduce: func(o *Object) (Value, error) {
			if o.Class.Name != "_rebuild_tensor_v2" {
				return o, nil
			}
			shape, ok := Ints(o.Args.Items[2])
			if !ok {
				t.Errorf("shape %s", Describe(o.Args.Items[2]))
			}
			return fmt.Sprint(o.Args.Items[0], " ", shape), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	top, ok := AsDict(v)
	if !ok {
		t.Fatalf("the pickle holds %s", Describe(v))
	}
	if epoch, _ := top.Get("epoch"); epoch != int64(3) {
		t.Errorf("epoch %v", epoch)
	}
	model, _ := top.Get("model")
	weights, ok := AsDict(model)
	if !ok {
		t.Fatalf("the model is %s", Describe(model))
	}
	if head, _ := weights.Get("head.weight"); weights.Len() != 13 || head != "storage 12 [48 16]" {
		t.Errorf("%d weights, the last %v", weights.Len(), head)
	}
	optimizer, _ := top.Get("optimizer")
	if state, ok := AsDict(optimizer); !ok || state.Len() == 0 {
		t.Errorf("the optimizer is %s", Describe(optimizer))
	}
	if storages <= 13 {
		t.Errorf("%d storages were asked for", storages)
	}
}
