package pickle

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gefenckpt/internal/fault"
)

var update = flag.Bool("update", false, "write testdata/written anew")

// What is written for each case is what check_written.py loads in CPython and
// PyTorch, byte for byte.
func TestAppendWritesWhatPythonLoads(t *testing.T) {
	for name, make := range cases {
		for _, protocol := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s.%d", name, protocol), func(t *testing.T) {
				got := mustAppend(t, make(), protocol)
				file := fmt.Sprintf("testdata/written/%s.%d.pickle", name, protocol)
				if *update {
					if err := os.WriteFile(file, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if want := load(t, file); !bytes.Equal(got, want) {
					t.Errorf("written otherwise than in %s", file)
				}
				if again := mustAppend(t, make(), protocol); !bytes.Equal(got, again) {
					t.Error("written differently the second time")
				}
				v := mustDecode(t, got)
				if !Equal(v, make()) {
					t.Errorf("read back as %s, which differs", Describe(v))
				}
				if a, b := distinct(make()), distinct(v); a != b {
					t.Errorf("%d containers read back, wrote %d", b, a)
				}
			})
		}
	}
}

// graph draws a value of containers that hold each other in any way that Python
// can make: the mutable ones lead anywhere, the others to what was there first.
func graph(t *rapid.T) Value {
	pool := []Value{nil, true, int64(-5), int64(70000), power(70, 3), 0.5, "text", Bytes("bytes"), &Global{Module: "builtins", Name: "int"}}
	pick := func(label string) Value { return rapid.SampledFrom(pool).Draw(t, label) }
	n := rapid.IntRange(1, 12).Draw(t, "containers")
	for range n {
		var v Value
		switch rapid.IntRange(0, 8).Draw(t, "kind") {
		case 0:
			v = NewList()
		case 1:
			v = NewDict()
		case 2:
			v = NewTuple(pick("item"))
		case 3:
			v = NewTuple(pick("item"), pick("item"), pick("item"), pick("item"))
		case 4:
			v = &Object{Class: &Global{Module: "m", Name: "made"}, Args: NewTuple(pick("argument")), New: true}
		case 5:
			v = &Object{Class: &Global{Module: "m", Name: "called"}, Args: NewTuple(pick("argument"))}
		case 6:
			v = &Set{Items: []Value{pick("member")}, Frozen: rapid.Bool().Draw(t, "frozen")}
		case 7:
			v = &ByteArray{Data: []byte{byte(len(pool))}}
		case 8:
			v = &Persistent{ID: NewTuple(pick("id"))}
		}
		pool = append(pool, v)
	}
	for i, v := range pool {
		switch v := v.(type) {
		case *List:
			for range rapid.IntRange(0, 3).Draw(t, "items") {
				v.Items = append(v.Items, pick("item"))
			}
		case *Dict:
			for range rapid.IntRange(0, 3).Draw(t, "entries") {
				v.Set(fmt.Sprintf("key %d", rapid.IntRange(0, 9).Draw(t, "key")), pick("value"))
			}
		case *Object:
			if v.HasState = rapid.Bool().Draw(t, "state"); v.HasState {
				v.State = pick("state")
			}
			if rapid.Bool().Draw(t, "extra") {
				v.Extra = &Extra{Items: []Value{pick("item")}, Pairs: []Pair{{int64(i), pick("value")}}}
			}
		}
	}
	return pool[len(pool)-1]
}

// Any graph of values is the same graph when it was written and read, in both
// protocols: equal, with as many containers, and equal bytes when written again.
func TestGraphsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := graph(t)
		for _, protocol := range []int{2, 4} {
			data, err := Append(nil, v, EncodeOptions{Protocol: protocol})
			if err != nil {
				t.Fatal(err)
			}
			w, err := Decode(data, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !Equal(v, w) || !Equal(w, v) {
				t.Fatalf("protocol %d: the value read back differs", protocol)
			}
			if a, b := distinct(v), distinct(w); a != b {
				t.Fatalf("protocol %d: %d containers read back, wrote %d", protocol, b, a)
			}
			again, err := Append(nil, w, EncodeOptions{Protocol: protocol})
			if err != nil || !bytes.Equal(data, again) {
				t.Fatalf("protocol %d: written differently the second time: %v", protocol, err)
			}
		}
	})
}

// What the encoder does not know is replaced, once for each pointer, in place.
func TestReplace(t *testing.T) {
	type tensor struct{ name string }
	shared := &tensor{"a"}
	asked := 0
	replace := func(v Value) (Value, error) {
		asked++
		return NewTuple("tensor", v.(*tensor).name), nil
	}
	data, err := Append(nil, NewList(shared, shared, &tensor{"b"}), EncodeOptions{Replace: replace})
	if err != nil {
		t.Fatal(err)
	}
	got := mustDecode(t, data)
	if want := NewList(NewTuple("tensor", "a"), NewTuple("tensor", "a"), NewTuple("tensor", "b")); !Equal(want, got) {
		t.Errorf("read back as %s", Describe(got))
	}
	if items, _ := Sequence(got); items[0] != items[1] {
		t.Error("what was shared is not")
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}

	// Values that cannot be compared are asked about each time.
	data, err = Append(nil, NewList([]int{1}, []int{2}), EncodeOptions{Replace: func(v Value) (Value, error) {
		return int64(v.([]int)[0]), nil
	}})
	if err != nil || !Equal(mustDecode(t, data), IntList([]int64{1, 2})) {
		t.Errorf("slices are not replaced: %v", err)
	}

	failure := fault.New(fault.Unsupported, "no tensors today")
	if _, err := Append(nil, shared, EncodeOptions{Replace: func(Value) (Value, error) { return nil, failure }}); !errors.Is(err, error(failure)) {
		t.Errorf("got %v, want the error of the hook", err)
	}
}

// What no pickle can hold is refused.
func TestAppendRefuses(t *testing.T) {
	selfSet := &Set{}
	selfSet.Items = []Value{NewTuple(selfSet)}
	deep := Value(nil)
	for range encodeDepth + 1 {
		deep = NewTuple(deep)
	}
	// A tuple of lists that each hold the tuple is begun anew in each of them.
	wide := &Tuple{}
	for range 600 {
		wide.Items = append(wide.Items, NewList(wide))
	}
	for range 5000 {
		wide.Items = append(wide.Items, nil)
	}
	tests := []struct {
		name string
		v    Value
		o    EncodeOptions
		kind fault.Kind
		says string
	}{
		{"a Go value", struct{}{}, EncodeOptions{}, fault.Internal, "a struct {} cannot be pickled"},
		{"protocol 3", nil, EncodeOptions{Protocol: 3}, fault.Internal, "protocol 3 is not written"},
		{"a deep value", deep, EncodeOptions{}, fault.Resource, "nests deeper than 2000"},
		{"a set in itself", selfSet, EncodeOptions{}, fault.Resource, "a set is part of itself"},
		{"a wide tuple in itself", wide, EncodeOptions{}, fault.Resource, "contain themselves would be written more than"},
		{"an endless replacement", struct{}{}, EncodeOptions{Replace: func(v Value) (Value, error) { return v, nil }}, fault.Resource, "nests deeper"},
		{"a string that is not UTF-8", "\xff", EncodeOptions{}, fault.Internal, "is not UTF-8"},
		{"a global with a newline", &Global{Module: "a\nb", Name: "c"}, EncodeOptions{}, fault.Internal, "a name that no pickle can hold"},
		{"a global that is not UTF-8", &Global{Module: "a", Name: "\xff"}, EncodeOptions{}, fault.Internal, "a name that no pickle can hold"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Append(nil, test.v, test.o); fault.KindOf(err) != test.kind || !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("got %v, want ...%s...", err, test.says)
			}
		})
	}
}

// Integers are as short as CPython writes them.
func TestIntegerWidths(t *testing.T) {
	for n, want := range map[int64]string{
		0: "K\x00", 255: "K\xff", 256: "M\x00\x01", 65536: "J\x00\x00\x01\x00", -1: "J\xff\xff\xff\xff",
		2147483648: "\x8a\x05\x00\x00\x00\x80\x00", 2147483649: "\x8a\x05\x01\x00\x00\x80\x00",
		-2147483649: "\x8a\x05\xff\xff\xff\x7f\xff", 1 << 39: "\x8a\x06\x00\x00\x00\x00\x80\x00", -1 << 39: "\x8a\x05\x00\x00\x00\x00\x80",
		-1 << 63: "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80",
	} {
		if got := string(mustAppend(t, n, 2)); got != "\x80\x02"+want+"." {
			t.Errorf("%d is written as %q", n, got)
		}
	}
}
