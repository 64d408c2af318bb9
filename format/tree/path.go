package tree

import (
	"strconv"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/internal/fault"
)

// Path leads from the root of a tree to a node: one step per level, a dict key
// or, in a list or tuple, the position as an int64.
type Path []pickle.Value

// Keys is the path of string keys.
func Keys(keys ...string) Path {
	path := make(Path, len(keys))
	for i, key := range keys {
		path[i] = key
	}
	return path
}

// String is the path as messages name it: the steps joined by dots.
func (p Path) String() string {
	var b strings.Builder
	for i, step := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Name(step))
	}
	return b.String()
}

// Name is a step in words: a string or number as it is, any other dict key
// described.
func Name(step pickle.Value) string {
	switch step := step.(type) {
	case string:
		return step
	case int64:
		return strconv.FormatInt(step, 10)
	}
	return Describe(step)
}

// Get returns the node at path, reading lazy values on the way and the node
// itself where it is one. A step that is not there is a Corrupt fault that says
// how far the path led and what stands there.
func Get(root pickle.Value, path ...pickle.Value) (pickle.Value, error) {
	node, err := Resolve(root)
	for depth, step := range path {
		if err != nil {
			return nil, fault.Within(err, "", Path(path[:depth]).String())
		}
		child, ok := Child(node, step)
		if !ok {
			return nil, noChild(node, step).In(Path(path[:depth]).String())
		}
		node, err = Resolve(child)
	}
	if err != nil {
		return nil, fault.Within(err, "", Path(path).String())
	}
	return node, nil
}

func noChild(node, step pickle.Value) *fault.Error {
	return fault.New(fault.Corrupt, "%s has no %q", Describe(node), Name(step))
}

// Child returns the value of a dict at a key, or of a list or tuple at a
// position. A string of digits also leads to an integer key and to a position, for
// paths that were written as text. It does not read lazy values.
func Child(node, step pickle.Value) (pickle.Value, bool) {
	if dict, ok := pickle.AsDict(node); ok {
		switch step := keyIn(dict, step).(type) {
		case string:
			return dict.Get(step)
		case int64:
			return dict.GetInt(step)
		}
		return nil, false
	}
	items, ok := pickle.Sequence(node)
	at, isInt := number(step)
	if !ok || !isInt || at < 0 || at >= int64(len(items)) {
		return nil, false
	}
	return items[at], true
}

// keyIn is the key of dict that a step means.
func keyIn(dict *pickle.Dict, step pickle.Value) pickle.Value {
	if name, ok := step.(string); ok {
		if _, ok := dict.Get(name); !ok {
			if n, ok := number(step); ok {
				if _, ok := dict.GetInt(n); ok {
					return n
				}
			}
		}
	}
	return step
}

// number is an integer step, or a string of its digits.
func number(step pickle.Value) (int64, bool) {
	switch step := step.(type) {
	case int64:
		return step, true
	case string:
		n, err := strconv.ParseInt(step, 10, 64)
		return n, err == nil && strconv.FormatInt(n, 10) == step
	}
	return 0, false
}
