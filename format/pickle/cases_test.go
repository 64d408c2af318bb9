package pickle

import (
	"bytes"
	"math"
	"math/big"
	"strings"
)

// cases are the values of testdata/make_pickles.py, by the names that they have
// there.
var cases = map[string]func() Value{
	"scalars": func() Value {
		return NewList(
			nil, true, false,
			int64(0), int64(255), int64(256), int64(65535), int64(65536), int64(-1),
			int64(1<<31-1), int64(-1<<31), int64(1<<31), int64(-1<<31-1),
			int64(math.MaxInt64), int64(math.MinInt64), power(63, 0), negative(power(63, 1)),
			power(77, 0), negative(power(77, 0)), int64(128), int64(-128), int64(32768), int64(-32768),
			1.5, math.Copysign(0, -1), 1e300, math.Inf(1), math.Inf(-1),
			"", "ascii", "caf\u00e9 \u6f22 \U0001f600", "lone \xed\xa0\x80 surrogate", "back\\slash\nnewline\r\x00\x1a", strings.Repeat("x", 300),
		)
	},
	"longs": func() Value {
		return NewList(power(2039, -1), negative(power(2039, 0)), power(2040, 0), negative(power(2040, 0)), power(4000, 0))
	},
	"raw": func() Value {
		all := make(Bytes, 256)
		for i := range all {
			all[i] = byte(i)
		}
		return NewList(Bytes{}, Bytes("abc"), all, Bytes(bytes.Repeat([]byte("y"), 300)), &ByteArray{}, &ByteArray{Data: []byte{0, 0xff}})
	},
	"containers": func() Value {
		return NewDict(
			"empty", NewList(NewTuple(), NewList(), NewDict()),
			"tuples", NewList(IntTuple([]int64{1}), IntTuple([]int64{1, 2}), IntTuple([]int64{1, 2, 3}), IntTuple([]int64{1, 2, 3, 4})),
			"nested", NewDict("a", NewDict("b", NewList(NewDict("c", NewTuple(int64(1), NewList(int64(2), NewTuple(int64(3)))))))),
			int64(7), "integer key",
			NewTuple(int64(1), "x"), "tuple key",
			nil, "None key",
		)
	},
	"sets": func() Value {
		inner := &Set{Items: []Value{IntTuple([]int64{1, 2})}, Frozen: true}
		return NewList(&Set{}, &Set{Items: []Value{int64(1)}}, &Set{Frozen: true}, &Set{Items: []Value{"x"}, Frozen: true}, &Set{Items: []Value{inner}})
	},
	"batches": func() Value {
		list, dict, set := &List{}, &Dict{}, &Set{}
		for i := range int64(1001) {
			list.Items = append(list.Items, i)
			dict.Set(i, nil)
			set.Items = append(set.Items, i)
		}
		return NewList(list, dict, IntList(make([]int64, 1000)), set)
	},
	"shared": func() Value {
		inner, data := NewList(int64(1)), Bytes("shared bytes")
		return NewList(inner, inner, NewTuple(inner), NewDict("k", inner), "shared text", "shared text", data, data)
	},
	"cyclic": func() Value {
		list := &List{}
		list.Items = []Value{list}
		dict := &Dict{}
		dict.Set("self", dict)
		object := thing("Thing")
		object.State, object.HasState = NewDict("me", object), true
		inShort, inLong := &List{}, &List{}
		short, long := NewTuple(inShort), NewTuple(int64(1), int64(2), int64(3), inLong)
		inShort.Items, inLong.Items = []Value{short}, []Value{long}
		return NewList(list, dict, object, short, long)
	},
	"cyclic_set": func() Value {
		member := thing("Thing")
		set := &Set{Items: []Value{member}}
		member.State, member.HasState = NewDict("sets", set), true
		return set
	},
	"objects": func() Value {
		full := thing("Thing")
		full.State, full.HasState = NewDict("a", int64(1), "b", NewList(int64(2))), true
		slotted := thing("Slotted")
		slotted.State, slotted.HasState = NewTuple(nil, NewDict("a", int64(3))), true
		items := thing("Items")
		items.Extra = &Extra{Items: []Value{int64(1), int64(2)}}
		items.State, items.HasState = NewDict("note", "kept"), true
		table := thing("Table")
		table.Extra = &Extra{Pairs: []Pair{{"k", "v"}}}
		ordered := called("collections", "OrderedDict")
		ordered.Extra = &Extra{Pairs: []Pair{{"z", int64(1)}, {"a", int64(2)}}}
		ordered.State, ordered.HasState = NewDict("note", "kept"), true
		counter := called("collections", "Counter", NewDict("a", int64(2), "b", int64(1)))
		byDefault := called("collections", "defaultdict", &Global{Module: "builtins", Name: "list"})
		byDefault.Extra = &Extra{Pairs: []Pair{{"k", NewList(int64(1))}}}
		return NewList(thing("Thing"), full, slotted, items, table, ordered, counter, byDefault,
			called("things", "Color", int64(1)), called("builtins", "complex", 1.0, -2.0),
			called("builtins", "range", int64(0), int64(3), int64(1)),
			&Global{Module: "builtins", Name: "int"}, &Global{Module: "builtins", Name: "str"}, &Global{Module: "builtins", Name: "len"},
		)
	},
	"keywords": func() Value {
		y := NewList(int64(2))
		named := thing("Named")
		named.Args = NewTuple(int64(1))
		named.Extra = &Extra{Kwargs: NewDict("y", y)}
		named.State, named.HasState = NewDict("x", int64(1), "y", y), true
		return named
	},
}

// power is 2 to the n, plus more.
func power(n uint, more int64) *big.Int {
	p := new(big.Int).Lsh(big.NewInt(1), n)
	return p.Add(p, big.NewInt(more))
}

func negative(n *big.Int) *big.Int { return new(big.Int).Neg(n) }

// thing is an object made by __new__ of a class of the generator.
func thing(class string) *Object {
	return &Object{Class: &Global{Module: "things", Name: class}, Args: NewTuple(), New: true}
}

func called(module, name string, args ...Value) *Object {
	return &Object{Class: &Global{Module: module, Name: name}, Args: NewTuple(args...)}
}

// distinct is how many containers and bytes a value holds, each counted once:
// what is shared must stay so.
func distinct(v Value) int {
	seen := map[Value]bool{}
	var walk func(Value)
	walk = func(v Value) {
		id := v
		switch v := v.(type) {
		case Bytes:
			if len(v) == 0 {
				return
			}
			id = bytesAt{&v[0], len(v)}
		case *ByteArray:
		case *Persistent: // written anew each time, as CPython does
			walk(v.ID)
			return
		default:
			if nestingOf(v) == nil {
				return
			}
		}
		if !seen[id] {
			seen[id] = true
			children(v, walk)
		}
	}
	walk(v)
	return len(seen)
}
