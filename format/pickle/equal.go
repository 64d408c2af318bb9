package pickle

import (
	"math"
	"math/big"
)

// Equal says whether two values are the same data: types must agree (1 is not
// True, a tuple no list), dicts may differ in order, floats go by their bits. It
// is linear on shared graphs and ends on cycles. Values of other packages are
// equal when they are identical.
func Equal(a, b Value) bool { return equal(a, b, map[[2]Value]bool{}) }

// equal assumes of pairs in seen that they are equal: they were compared, or are
// being compared further up.
func equal(a, b Value, seen map[[2]Value]bool) bool {
	if _, ok := a.(nested); ok {
		pair := [2]Value{a, b}
		if _, ok := b.(nested); !ok {
			return false
		}
		if seen[pair] {
			return true
		}
		seen[pair] = true
	}
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	case *big.Int:
		b, ok := b.(*big.Int)
		return ok && a.Cmp(b) == 0
	case Bytes:
		b, ok := b.(Bytes)
		return ok && string(a) == string(b)
	case *ByteArray:
		b, ok := b.(*ByteArray)
		return ok && string(a.Data) == string(b.Data)
	case *Tuple:
		b, ok := b.(*Tuple)
		return ok && equalItems(a.Items, b.Items, seen)
	case *List:
		b, ok := b.(*List)
		return ok && equalItems(a.Items, b.Items, seen)
	case *Set:
		b, ok := b.(*Set)
		return ok && a.Frozen == b.Frozen && equalItems(a.Items, b.Items, seen)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && equalDicts(a, b, seen)
	case *Global:
		b, ok := b.(*Global)
		return ok && a.Module == b.Module && a.Name == b.Name
	case *Object:
		b, ok := b.(*Object)
		return ok && a.New == b.New && a.HasState == b.HasState && equal(a.Class, b.Class, seen) &&
			equal(a.args(), b.args(), seen) && equal(a.State, b.State, seen) && equalExtra(a.Extra, b.Extra, seen)
	case *Persistent:
		b, ok := b.(*Persistent)
		return ok && equal(a.ID, b.ID, seen)
	}
	return a == b
}

func (o *Object) args() *Tuple {
	if o.Args == nil {
		return emptyTuple
	}
	return o.Args
}

func equalExtra(a, b *Extra, seen map[[2]Value]bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalItems(a.Items, b.Items, seen) && equalPairs(a.Pairs, b.Pairs, seen)
}

func equalItems(a, b []Value, seen map[[2]Value]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i], seen) {
			return false
		}
	}
	return true
}

func equalPairs(a, b []Pair, seen map[[2]Value]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i].Key, b[i].Key, seen) || !equal(a[i].Value, b[i].Value, seen) {
			return false
		}
	}
	return true
}

// equalDicts compares entry by entry; keys that stand elsewhere in b are looked
// up.
func equalDicts(a, b *Dict, seen map[[2]Value]bool) bool {
	if len(a.Pairs) != len(b.Pairs) {
		return false
	}
	for i, p := range a.Pairs {
		other := b.Pairs[i]
		if hashable(p.Key) && !sameKey(p.Key, other.Key) {
			j := b.find(p.Key)
			if j < 0 {
				return false
			}
			other = b.Pairs[j]
		}
		if !equal(p.Key, other.Key, seen) || !equal(p.Value, other.Value, seen) {
			return false
		}
	}
	return true
}
