package tree

import (
	"slices"

	"gefenckpt/format/pickle"
	"gefenckpt/internal/fault"
)

// Walk calls visit for root and for every value below it, parents first and in
// order. Each container is entered once, by the first path that leads to it, so
// cycles end and shared containers cost nothing; lazy values are visited, not
// read. The path is only valid during the call. If visit returns false, what
// lies below the value is left out.
func Walk(root pickle.Value, visit func(path Path, v pickle.Value) bool) {
	type frame struct {
		pairs []pickle.Pair  // of a dict
		items []pickle.Value // of a list or tuple
		next  int
	}
	var (
		path    Path
		stack   []frame
		entered = make(map[pickle.Value]bool)
	)
	enter := func(v pickle.Value) {
		if !visit(path, v) {
			return
		}
		var f frame
		if dict, ok := pickle.AsDict(v); ok {
			f.pairs = dict.Pairs
		} else if f.items, ok = pickle.Sequence(v); !ok {
			return
		}
		if !entered[v] {
			entered[v] = true
			stack = append(stack, f)
			path = append(path, nil)
		}
	}
	for enter(root); len(stack) > 0; {
		f := &stack[len(stack)-1]
		i := f.next
		f.next++
		switch {
		case i < len(f.pairs):
			path[len(path)-1] = f.pairs[i].Key
			enter(f.pairs[i].Value)
		case i < len(f.items):
			path[len(path)-1] = int64(i)
			enter(f.items[i])
		default:
			stack = stack[:len(stack)-1]
			path = path[:len(path)-1]
		}
	}
}

// Replace returns a copy of root in which the node at path is value. Only the
// containers along the path are copied; everything else is shared with root. A
// last step that is not there yet is added to its dict.
func Replace(root, value pickle.Value, path ...pickle.Value) (pickle.Value, error) {
	if len(path) == 0 {
		return value, nil
	}
	node, err := Resolve(root)
	if err != nil {
		return nil, err
	}
	step := path[0]
	child, ok := Child(node, step)
	if _, isDict := pickle.AsDict(node); !ok && (!isDict || len(path) > 1) {
		return nil, noChild(node, step)
	}
	child, err = Replace(child, value, path[1:]...)
	if err != nil {
		return nil, fault.Within(err, "", Name(step))
	}
	return withChild(node, step, child), nil
}

// withChild copies one container with one child set.
func withChild(node, step, child pickle.Value) pickle.Value {
	at, _ := number(step)
	switch node := node.(type) {
	case *pickle.List:
		return &pickle.List{Items: withItem(node.Items, at, child)}
	case *pickle.Tuple:
		return &pickle.Tuple{Items: withItem(node.Items, at, child)}
	case *pickle.Object: // an OrderedDict keeps its class
		object, extra := *node, pickle.Extra{}
		if node.Extra != nil {
			extra = *node.Extra
		}
		extra.Pairs = withPair(extra.Pairs, keyIn(&pickle.Dict{Pairs: extra.Pairs}, step), child)
		object.Extra = &extra
		return &object
	}
	dict, _ := pickle.AsDict(node)
	return &pickle.Dict{Pairs: withPair(dict.Pairs, keyIn(dict, step), child)}
}

func withItem(items []pickle.Value, at int64, child pickle.Value) []pickle.Value {
	items = slices.Clone(items)
	items[at] = child
	return items
}

func withPair(pairs []pickle.Pair, key, child pickle.Value) []pickle.Pair {
	pairs = slices.Clone(pairs)
	for i := range pairs {
		if pairs[i].Key == key {
			pairs[i].Value = child
			return pairs
		}
	}
	return append(pairs, pickle.Pair{Key: key, Value: child})
}
