package pickle

import "slices"

// dictClasses are the classes whose objects are dicts with another name.
var dictClasses = map[className]bool{
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
		if !dictClasses[className{v.Class.Module, v.Class.Name}] {
			return nil, false
		}
		pairs, ok := initial(v)
		switch {
		case !ok:
			return nil, false
		case v.Extra != nil && len(pairs) == 0:
			pairs = v.Extra.Pairs
		case v.Extra != nil:
			pairs = slices.Concat(pairs, v.Extra.Pairs)
		}
		return &Dict{Pairs: pairs}, true
	}
	return nil, false
}

// initial are the entries that an object of dictClasses gets from its arguments:
// a dict that a Counter counts on from, or the list of entries that Python 2
// makes an OrderedDict of. The argument of a defaultdict makes values, not
// entries. It is false for other arguments.
func initial(o *Object) ([]Pair, bool) {
	if o.Class.Name == "defaultdict" || o.Args == nil || len(o.Args.Items) == 0 {
		return nil, true
	}
	switch from := o.Args.Items[0].(type) {
	case *Dict:
		return from.Pairs, true
	case *List:
		if o.Class.Name != "OrderedDict" {
			return nil, false
		}
		pairs := make([]Pair, len(from.Items))
		for i, item := range from.Items {
			entry, ok := Sequence(item)
			if !ok || len(entry) != 2 {
				return nil, false
			}
			pairs[i] = Pair{entry[0], entry[1]}
		}
		return pairs, true
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
