package pickle

import (
	"fmt"
	"math/big"
)

// dictClasses are the classes whose objects are dicts with another name.
var dictClasses = map[[2]string]bool{
	{"collections", "OrderedDict"}: true,
	{"collections", "defaultdict"}: true,
	{"collections", "Counter"}:     true,
}

// AsDict views a dict, or an OrderedDict, defaultdict or Counter, as a Dict. A
// change to the view of an object does not change the object.
func AsDict(v Value) (*Dict, bool) {
	switch v := v.(type) {
	case *Dict:
		return v, true
	case *Object:
		if !dictClasses[[2]string{v.Class.Module, v.Class.Name}] {
			return nil, false
		}
		if v.Extra == nil {
			return &Dict{}, true
		}
		return &Dict{Pairs: v.Extra.Pairs}, true
	}
	return nil, false
}

// Sequence are the items of a list or tuple.
func Sequence(v Value) ([]Value, bool) {
	switch v := v.(type) {
	case *List:
		return v.Items, true
	case *Tuple:
		return v.Items, true
	}
	return nil, false
}

// Ints are the items of a list or tuple of integers, or of a torch.Size.
func Ints(v Value) ([]int64, bool) {
	if o, ok := v.(*Object); ok && o.Class.Module == "torch" && o.Class.Name == "Size" && len(o.Args.Items) == 1 {
		v = o.Args.Items[0]
	}
	return sequenceOf[int64](v)
}

// Strings are the items of a list or tuple of strings.
func Strings(v Value) ([]string, bool) { return sequenceOf[string](v) }

func sequenceOf[T any](v Value) ([]T, bool) {
	items, ok := Sequence(v)
	if !ok {
		return nil, false
	}
	out := make([]T, len(items))
	for i, item := range items {
		if out[i], ok = item.(T); !ok {
			return nil, false
		}
	}
	return out, true
}

// builtin makes Go values of the builtins that protocol 2 can only write as
// calls; it returns o where it is no such call.
func builtin(o *Object) Value {
	args := o.Args.Items
	switch o.Class.Module + "." + o.Class.Name {
	case "_codecs.encode":
		if len(args) == 2 && args[1] == "latin1" {
			if b, ok := latin1(args[0]); ok {
				return Bytes(b)
			}
		}
	case "builtins.bytearray":
		switch {
		case len(args) == 0:
			return &ByteArray{}
		case len(args) == 1:
			if b, ok := args[0].(Bytes); ok {
				return &ByteArray{Data: b}
			}
		}
	case "builtins.bytes":
		if len(args) == 0 {
			return Bytes{}
		}
	case "builtins.set", "builtins.frozenset":
		if len(args) == 1 {
			if l, ok := args[0].(*List); ok {
				return &Set{Items: l.Items, Frozen: o.Class.Name == "frozenset", nesting: nesting{depth: l.depth}}
			}
		}
	}
	return o
}

// latin1 turns each code point of a string into one byte.
func latin1(v Value) ([]byte, bool) {
	s, ok := v.(string)
	if !ok {
		return nil, false
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return nil, false
		}
		b = append(b, byte(r))
	}
	return b, true
}

// describe is a value in a few words, for errors.
func describe(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool, int64, float64:
		return fmt.Sprintf("%v", v)
	case *big.Int:
		return "a long integer"
	case string:
		if len(v) > 40 {
			return fmt.Sprintf("%q...", v[:40])
		}
		return fmt.Sprintf("%q", v)
	case Bytes, *ByteArray:
		return "bytes"
	case *Tuple:
		return fmt.Sprintf("a tuple of %d", len(v.Items))
	case *List:
		return fmt.Sprintf("a list of %d", len(v.Items))
	case *Dict:
		return fmt.Sprintf("a dict of %d", len(v.Pairs))
	case *Set:
		return fmt.Sprintf("a set of %d", len(v.Items))
	case *Global:
		return v.Module + "." + v.Name
	case *Object:
		return "an object of " + v.Class.Module + "." + v.Class.Name
	case *Persistent:
		return "a persistent id"
	}
	return fmt.Sprintf("a %T", v)
}

// Describe is a value in a few words, for error texts: "a dict of 3", "None".
func Describe(v Value) string { return describe(v) }

// children calls each for the values that v holds.
func children(v Value, each func(Value)) {
	all := func(items []Value) {
		for _, item := range items {
			each(item)
		}
	}
	pairs := func(pairs []Pair) {
		for _, p := range pairs {
			each(p.Key)
			each(p.Value)
		}
	}
	switch v := v.(type) {
	case *Tuple:
		all(v.Items)
	case *List:
		all(v.Items)
	case *Set:
		all(v.Items)
	case *Dict:
		pairs(v.Pairs)
	case *Object:
		if v.Args != nil {
			each(v.Args)
		}
		each(v.State)
		if v.Extra != nil {
			all(v.Extra.Items)
			pairs(v.Extra.Pairs)
		}
	case *Persistent:
		each(v.ID)
	}
}

// deeperThan says whether the longest path in v, cycles cut, passes limit. It
// works level by level from the leaves up, so that it needs no deep recursion.
func deeperThan(v Value, limit int) bool {
	const open = -1 // on the path from the root: an edge to it closes a cycle
	depth := map[Value]int{}
	type frame struct {
		v    Value
		next []Value
		max  int
	}
	push := func(path []frame, v Value) []frame {
		depth[v] = open
		f := frame{v: v}
		children(v, func(c Value) {
			if _, ok := c.(nested); ok {
				f.next = append(f.next, c)
			}
		})
		return append(path, f)
	}
	if _, ok := v.(nested); !ok {
		return false
	}
	for path := push(nil, v); len(path) > 0; {
		if len(path) > limit {
			return true
		}
		top := &path[len(path)-1]
		if len(top.next) == 0 {
			depth[top.v] = top.max + 1
			if top.max+1 > limit {
				return true
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				up := &path[len(path)-1]
				up.max = max(up.max, top.max+1)
			}
			continue
		}
		c := top.next[len(top.next)-1]
		top.next = top.next[:len(top.next)-1]
		if d, seen := depth[c]; !seen {
			path = push(path, c)
		} else if d != open {
			top.max = max(top.max, d)
		}
	}
	return false
}
