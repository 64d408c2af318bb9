package tree

import "gefenckpt/format/pickle"

// Same says whether two trees hold the same data, reading lazy values where they
// stand; see [pickle.Equal].
func Same(a, b pickle.Value) (bool, error) {
	a, err := Force(a)
	if err != nil {
		return false, err
	}
	if b, err = Force(b); err != nil {
		return false, err
	}
	return pickle.Equal(a, b), nil
}

// Force returns the tree with every lazy value in its dicts, lists and tuples
// read. Parts without lazy values are not copied.
func Force(v pickle.Value) (pickle.Value, error) {
	lazy := false
	Walk(v, func(_ Path, v pickle.Value) bool {
		_, is := v.(*Lazy)
		lazy = lazy || is
		return !lazy
	})
	if !lazy {
		return v, nil
	}
	return force(v, map[pickle.Value]pickle.Value{})
}

func force(v pickle.Value, done map[pickle.Value]pickle.Value) (pickle.Value, error) {
	v, err := Resolve(v)
	if err != nil {
		return nil, err
	}
	dict, isDict := pickle.AsDict(v)
	items, isSequence := pickle.Sequence(v)
	if !isDict && !isSequence {
		return v, nil
	}
	if out, ok := done[v]; ok {
		return out, nil
	}
	if isDict {
		out := &pickle.Dict{Pairs: make([]pickle.Pair, len(dict.Pairs))}
		done[v] = out
		for i, p := range dict.Pairs {
			out.Pairs[i].Key = p.Key
			if out.Pairs[i].Value, err = force(p.Value, done); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	forced := make([]pickle.Value, len(items))
	var out pickle.Value = &pickle.List{Items: forced}
	if _, isTuple := v.(*pickle.Tuple); isTuple {
		out = &pickle.Tuple{Items: forced}
	}
	done[v] = out
	for i, item := range items {
		if forced[i], err = force(item, done); err != nil {
			return nil, err
		}
	}
	return out, nil
}
