// Package pickle reads and writes Python pickles, protocols 2 to 5, without
// ever calling anything: classes and functions become inert [Global] records,
// and what Python would build by calling them becomes an [Object].
package pickle

import "sync/atomic"

// Value is a Python object as inert Go data:
//
//	None               nil
//	bool               bool
//	int                int64, or *big.Int beyond 64 bits
//	float              float64
//	str                string, UTF-8; lone surrogates as three bytes, as CPython
//	                   writes them
//	bytes, bytearray   Bytes, *ByteArray
//	tuple              *Tuple
//	list               *List
//	dict               *Dict
//	set, frozenset     *Set
//	class or function  *Global
//	other instances    *Object
//	persistent id      *Persistent, or what the Persistent hook made of it
//
// Pointers keep identity: what Python shared is shared, so a value can be a
// graph with cycles, and a small pickle can hold exponentially many paths. Walk
// it with a visited set or a bound. Its depth is bounded (see [Limits]).
type Value = any

// Bytes is a Python bytes object.
type Bytes []byte

// ByteArray is a Python bytearray.
type ByteArray struct{ Data []byte }

// Tuple is a Python tuple.
type Tuple struct {
	Items []Value
	nesting
}

// List is a Python list.
type List struct {
	Items []Value
	nesting
}

// Set is a Python set or frozenset, in the order of the pickle.
type Set struct {
	Items []Value
	nesting
	Frozen bool
}

// Pair is one entry of a dict.
type Pair struct{ Key, Value Value }

// Dict is a Python dict in insertion order. Keys are whatever the pickle holds;
// no two are equal strings or integers. Looking keys up is safe from several
// goroutines. Entries may be appended to Pairs; to remove one or to change its
// key, use Delete and Set.
type Dict struct {
	Pairs []Pair
	index atomic.Pointer[dictIndex] // built when it pays
	nesting
}

// Global is a reference to a class or function by name. Nothing is imported.
type Global struct {
	Module, Name string
	Offset       int64 // of the opcode, in bytes from the start of the pickle
}

// Object is what Python would have made by calling Class with Args (New: by
// Class.__new__, opcode NEWOBJ; otherwise REDUCE), then setting State (BUILD),
// and appending Items or setting Pairs.
type Object struct {
	Class  *Global
	Args   *Tuple
	State  Value  // of BUILD, or what the Build hook put there
	Extra  *Extra // nil when there is none of it
	Offset int64  // of the opcode that made it
	nesting
	New      bool
	HasState bool
}

// Extra is what few objects have: what APPENDS and SETITEMS added (to an
// OrderedDict or a list subclass, say), and the keyword arguments of NEWOBJ_EX.
type Extra struct {
	Items  []Value
	Pairs  []Pair
	Kwargs *Dict
}

// Persistent is a persistent id that no hook resolved.
type Persistent struct {
	ID     Value
	Offset int64
	nesting
}

// nesting is how deep a container's contents go, as far as it is known while
// decoding, and whether it stands in another container already.
type nesting struct {
	depth  int32
	placed bool
}

// nestingOf is the nesting of a container, nil of what holds no values.
func nestingOf(v Value) *nesting {
	switch v := v.(type) {
	case *Tuple:
		if len(v.Items) > 0 {
			return &v.nesting
		}
	case *List:
		return &v.nesting
	case *Dict:
		return &v.nesting
	case *Set:
		return &v.nesting
	case *Object:
		return &v.nesting
	case *Persistent:
		return &v.nesting
	}
	return nil
}
