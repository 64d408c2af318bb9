package pickle

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEqual(t *testing.T) {
	ring := func(n int) *List { // lists that each hold the next
		first := &List{}
		last := first
		for range n - 1 {
			next := NewList()
			last.Items = []Value{next}
			last = next
		}
		last.Items = []Value{first}
		return first
	}
	set := func(frozen bool, items ...Value) *Set { return &Set{Items: items, Frozen: frozen} }
	key := NewTuple(int64(1))
	tests := []struct {
		name string
		a, b Value
		want bool
	}{
		{"None", nil, nil, true},
		{"None and False", nil, false, false},
		{"1 and True", int64(1), true, false},
		{"1 and 1.0", int64(1), 1.0, false},
		{"text and bytes", "a", Bytes("a"), false},
		{"bytes and bytearray", Bytes("a"), &ByteArray{Data: []byte("a")}, false},
		{"bytes", Bytes("a"), Bytes("b"), false},
		{"zeros", 0.0, math.Copysign(0, -1), false},
		{"NaN", math.NaN(), math.NaN(), true},
		{"long integers", power(70, 0), power(70, 0), true},
		{"long integers that differ", power(70, 0), power(70, 1), false},
		{"list and tuple", NewList(int64(1)), NewTuple(int64(1)), false},
		{"empty list and tuple", NewList(), NewTuple(), false},
		{"list and None", NewList(), nil, false},
		{"lists of other lengths", NewList(nil), NewList(nil, nil), false},
		{"dicts in another order", NewDict("a", nil, "b", true), NewDict("b", true, "a", nil), true},
		{"dicts with other values", NewDict("a", nil, "b", true), NewDict("b", nil, "a", true), false},
		{"dicts with other keys", NewDict("a", nil), NewDict("b", nil), false},
		{"dicts with keys of other types", NewDict(int64(1), nil), NewDict(true, nil), false},
		{"dicts with a tuple key", NewDict("a", nil, key, true), NewDict(NewTuple(int64(1)), true, "a", nil), true},
		{"dicts of which one is larger", NewDict("a", nil), NewDict("a", nil, "b", nil), false},
		{"sets in another order", set(false, "a", 1.5, Bytes("c"), power(70, 0)), set(false, power(70, 0), Bytes("c"), 1.5, "a"), true},
		{"sets that differ", set(false, "a"), set(false, "b"), false},
		{"set and frozenset", set(false, "a"), set(true, "a"), false},
		{"globals", &Global{Module: "a", Name: "b.c", Offset: 1}, &Global{Module: "a", Name: "b.c"}, true},
		{"globals with the same dotted name", &Global{Module: "a.b", Name: "c"}, &Global{Module: "a", Name: "b.c"}, false},
		{"objects", called("a", "b", "c"), called("a", "b", "c"), true},
		{"objects made otherwise", thing("Thing"), called("things", "Thing"), false},
		{"objects with other arguments", called("a", "b", "c"), called("a", "b", "d"), false},
		{"object without arguments", &Object{Class: &Global{}}, &Object{Class: &Global{}, Args: NewTuple()}, true},
		{"object with the state None", &Object{Class: &Global{}, HasState: true}, &Object{Class: &Global{}}, false},
		{"object with empty additions", &Object{Class: &Global{}, Extra: &Extra{}}, &Object{Class: &Global{}}, true},
		{"object with an item", &Object{Class: &Global{}, Extra: &Extra{Items: []Value{nil}}}, &Object{Class: &Global{}}, false},
		{"object with keywords", &Object{Class: &Global{}, Extra: &Extra{Kwargs: NewDict()}}, &Object{Class: &Global{}}, false},
		{"persistent ids", &Persistent{ID: "a", Offset: 1}, &Persistent{ID: "a"}, true},
		{"other persistent ids", &Persistent{ID: "a"}, &Persistent{ID: "b"}, false},
		{"rings that look alike", ring(2), ring(3), true},
		{"ring and a list of None", ring(1), NewList(nil), false},
		{"other Go values", struct{ n int }{1}, struct{ n int }{1}, true},
		{"Go values without ==", []int{1}, []int{1}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if Equal(test.a, test.b) != test.want || Equal(test.b, test.a) != test.want {
				t.Errorf("want %v", test.want)
			}
			if !Equal(test.a, test.a) && test.name != "Go values without ==" {
				t.Error("not equal to itself")
			}
		})
	}
}

// A dict is a map in the order of insertion, whatever its size.
func TestDictIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &Dict{}
		for i := range rapid.IntRange(0, 2*smallDict).Draw(t, "before") {
			d.Set(int64(i), "before")
		}
		want := map[Value]Value{}
		for _, p := range d.Pairs {
			want[p.Key] = p.Value
		}
		for step := range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := Value(rapid.Int64Range(0, 3*smallDict).Draw(t, "key"))
			if rapid.Bool().Draw(t, "text") {
				key = fmt.Sprint(key)
			}
			switch rapid.IntRange(0, 2).Draw(t, "do") {
			case 0:
				_, there := want[key]
				if d.Delete(key) != there {
					t.Fatalf("Delete(%v) is not %v", key, there)
				}
				delete(want, key)
			case 1: // as decoding does
				if _, there := want[key]; !there {
					d.Pairs = append(d.Pairs, Pair{key, step})
					want[key] = step
				}
			default:
				d.Set(key, step)
				want[key] = step
			}
			get, isThere := d.Get, false
			var got Value
			if n, ok := key.(int64); ok {
				got, isThere = d.GetInt(n)
			} else {
				got, isThere = get(key.(string))
			}
			if v, there := want[key]; there != isThere || got != v {
				t.Fatalf("%v is %v, %v, want %v, %v", key, got, isThere, v, there)
			}
		}
		got := map[Value]Value{}
		for _, p := range d.Pairs {
			got[p.Key] = p.Value
		}
		if diff := cmp.Diff(want, got); diff != "" || d.Len() != len(want) {
			t.Fatalf("entries (-want +got):\n%s", diff)
		}
	})
}

// Reading a dict from several goroutines finds every key.
func TestDictIsReadConcurrently(t *testing.T) {
	d := &Dict{}
	for i := range int64(1000) {
		d.Pairs = append(d.Pairs, Pair{i, i})
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range int64(1000) {
				if v, ok := d.GetInt(i); !ok || v != i {
					t.Errorf("entry %d is %v, %v", i, v, ok)
				}
			}
		})
	}
	wait.Wait()
}

func TestAsDict(t *testing.T) {
	extra := func(o *Object, pairs ...Pair) *Object {
		o.Extra = &Extra{Pairs: pairs}
		return o
	}
	tests := []struct {
		name string
		v    Value
		want *Dict // nil: none
	}{
		{"dict", NewDict("a", nil), NewDict("a", nil)},
		{"empty OrderedDict", called("collections", "OrderedDict"), NewDict()},
		{"OrderedDict", extra(called("collections", "OrderedDict"), Pair{"a", nil}), NewDict("a", nil)},
		{"OrderedDict of Python 2", called("collections", "OrderedDict", NewList(NewList("a", nil), NewTuple("b", true))), NewDict("a", nil, "b", true)},
		{"OrderedDict of something else", called("collections", "OrderedDict", NewList("ab")), nil},
		{"OrderedDict of a number", called("collections", "OrderedDict", int64(1)), nil},
		{"defaultdict", extra(called("collections", "defaultdict", NewDict("no", "entry")), Pair{"a", nil}), NewDict("a", nil)},
		{"Counter", called("collections", "Counter", NewDict("a", int64(2))), NewDict("a", int64(2))},
		{"Counter that was added to", extra(called("collections", "Counter", NewDict("a", int64(2))), Pair{"b", int64(1)}), NewDict("a", int64(2), "b", int64(1))},
		{"Counter of a list", called("collections", "Counter", NewList(NewList("a", nil))), nil},
		{"other object", extra(called("other", "OrderedDict"), Pair{"a", nil}), nil},
		{"list", NewList(), nil},
		{"None", nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := AsDict(test.v)
			if ok != (test.want != nil) || ok && !Equal(got, test.want) {
				t.Errorf("got %s, %v", Describe(got), ok)
			}
		})
	}
}

func TestSequences(t *testing.T) {
	size := called("torch", "Size", NewTuple(int64(2), int64(3)))
	tests := []struct {
		name    string
		v       Value
		ints    []int64
		strings []string
	}{
		{"list of integers", IntList([]int64{1, 2}), []int64{1, 2}, nil},
		{"tuple of integers", IntTuple([]int64{1, 2}), []int64{1, 2}, nil},
		{"size", size, []int64{2, 3}, nil},
		{"list of strings", StringList([]string{"a"}), nil, []string{"a"}},
		{"empty list", NewList(), []int64{}, []string{}},
		{"mixed list", NewList(int64(1), "a"), nil, nil},
		{"bools", NewList(true), nil, nil},
		{"other object", called("torch", "Dimensions", NewTuple(int64(2))), nil, nil},
		{"number", int64(1), nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ints, ok := Ints(test.v)
			if ok != (test.ints != nil) || ok && !cmp.Equal(ints, test.ints) {
				t.Errorf("integers %v, %v", ints, ok)
			}
			texts, ok := Strings(test.v)
			if ok != (test.strings != nil) || ok && !cmp.Equal(texts, test.strings) {
				t.Errorf("strings %v, %v", texts, ok)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	for want, v := range map[string]Value{
		"None":                                 nil,
		"True":                                 true,
		"-5":                                   int64(-5),
		"0.5":                                  0.5,
		"a long integer":                       power(70, 0),
		`"text"`:                               "text",
		"bytes":                                Bytes("x"),
		"a bytearray":                          &ByteArray{},
		"a tuple of 1":                         NewTuple(nil),
		"a list of 2":                          NewList(nil, nil),
		"a dict of 1":                          NewDict("a", nil),
		"a set of 0":                           &Set{},
		"collections.Counter":                  &Global{Module: "collections", Name: "Counter"},
		"an object of a.b":                     called("a", "b"),
		"a persistent id":                      &Persistent{},
		"a struct {}":                          struct{}{},
		`"` + strings.Repeat("x", 40) + `"...`: strings.Repeat("x", 41),
		`the class or function "` + strings.Repeat("m", 40) + `"...`: &Global{Module: strings.Repeat("m", 1000), Name: "n"},
	} {
		if got := Describe(v); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
