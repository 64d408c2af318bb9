package pickle

import (
	"math"
	"math/big"
	"reflect"
	"slices"
)

// Equal says whether two values are the same data: types must agree (1 is not
// True, a tuple no list), dicts and sets may differ in order, floats go by their
// bits. Keys and members other than strings, numbers and the like are compared in
// the order in which they stand. It is linear on shared graphs and ends on
// cycles. Values of other packages are equal when Go's == says so.
func Equal(a, b Value) bool {
	c := comparison{}
	return c.equal(a, b)
}

// comparison has the pairs of containers that are taken to be equal: they were
// compared, or are being compared further up. One pair that differs ends it all.
type comparison map[[2]Value]bool

func (c comparison) equal(a, b Value) bool {
	if nestingOf(a) != nil {
		pair := [2]Value{a, b}
		if nestingOf(b) == nil {
			return false
		}
		if c[pair] {
			return true
		}
		c[pair] = true
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
		return ok && c.items(a.Items, b.Items)
	case *List:
		b, ok := b.(*List)
		return ok && c.items(a.Items, b.Items)
	case *Set:
		b, ok := b.(*Set)
		return ok && a.Frozen == b.Frozen && c.unordered(members(a.Items), members(b.Items))
	case *Dict:
		b, ok := b.(*Dict)
		return ok && c.unordered(a.Pairs, b.Pairs)
	case *Global:
		b, ok := b.(*Global)
		return ok && a.is(b)
	case *Object:
		b, ok := b.(*Object)
		return ok && c.objects(a, b)
	case *Persistent:
		b, ok := b.(*Persistent)
		return ok && c.equal(a.ID, b.ID)
	}
	return a == nil && b == nil || a != nil && reflect.ValueOf(a).Comparable() && a == b
}

func (c comparison) items(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !c.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (c comparison) objects(a, b *Object) bool {
	x, y := a.Extra, b.Extra
	if x == nil {
		x = &Extra{}
	}
	if y == nil {
		y = &Extra{}
	}
	if (x.Kwargs == nil) != (y.Kwargs == nil) || x.Kwargs != nil && !c.equal(x.Kwargs, y.Kwargs) {
		return false
	}
	return a.New == b.New && a.HasState == b.HasState && a.Class.is(b.Class) && c.equal(a.args(), b.args()) &&
		c.equal(a.State, b.State) && c.items(x.Items, y.Items) && c.unordered(x.Pairs, y.Pairs)
}

// members are the entries of a set, as keys without values.
func members(items []Value) []Pair {
	pairs := make([]Pair, len(items))
	for i, item := range items {
		pairs[i].Key = item
	}
	return pairs
}

// unordered compares entries with scalar keys by these, and others one after the
// other.
func (c comparison) unordered(a, b []Pair) bool {
	a, othersOfA := split(a)
	b, othersOfB := split(b)
	return len(a) == len(b) && len(othersOfA) == len(othersOfB) && c.byKey(a, b) && c.inOrder(othersOfA, othersOfB)
}

// split parts the entries with scalar keys from others, in their orders.
func split(pairs []Pair) (scalars, others []Pair) {
	for i, p := range pairs {
		switch _, ok := scalar(p.Key); {
		case !ok:
			if others == nil {
				scalars = slices.Clone(pairs[:i])
			}
			others = append(others, p)
		case others != nil:
			scalars = append(scalars, p)
		}
	}
	if others == nil {
		return pairs, nil
	}
	return scalars, others
}

func (c comparison) inOrder(a, b []Pair) bool {
	for i := range a {
		if !c.equal(a[i].Key, b[i].Key) || !c.equal(a[i].Value, b[i].Value) {
			return false
		}
	}
	return true
}

// byKey compares entries with scalar keys, in order as long as the keys agree.
func (c comparison) byKey(a, b []Pair) bool {
	same := 0
	for same < len(a) && mustScalar(a[same].Key) == mustScalar(b[same].Key) {
		same++
	}
	if !c.inOrder(a[:same], b[:same]) {
		return false
	}
	rest := make(map[Value]Value, len(b)-same)
	for _, p := range b[same:] {
		rest[mustScalar(p.Key)] = p.Value
	}
	for _, p := range a[same:] {
		key := mustScalar(p.Key)
		value, ok := rest[key]
		if !ok || !c.equal(p.Value, value) {
			return false
		}
		delete(rest, key)
	}
	return true
}

type (
	floatBits uint64
	rawBytes  string
	decimal   string
)

// scalar is what a key without parts is looked up by.
func scalar(v Value) (Value, bool) {
	switch v := v.(type) {
	case nil, bool, int64, string:
		return v, true
	case float64:
		return floatBits(math.Float64bits(v)), true
	case Bytes:
		return rawBytes(v), true
	case *big.Int:
		return decimal(v.Text(16)), true
	}
	return nil, false
}

func mustScalar(v Value) Value {
	key, _ := scalar(v)
	return key
}
