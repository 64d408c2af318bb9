package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
)

// Entry is something in a container that is not the optimizer's state.
type Entry struct {
	Path    string // dotted
	Kind    string // in words: "dict of 12 entries, 9 of them tensors", "int64 3", ...
	Tensors int    // in it, at any depth
	Bytes   int64  // of these tensors
}

// Beside lists what stands beside the optimizer's state, level by level along
// Key.
func (c *Checkpoint) Beside() []Entry {
	var out []Entry
	node := c.Root
	for depth, key := range c.Key {
		var children []pickle.Pair
		if dict, ok := pickle.AsDict(node); ok {
			children = dict.Pairs
		} else if items, ok := pickle.Sequence(node); ok {
			for i, item := range items {
				children = append(children, pickle.Pair{Key: int64(i), Value: item})
			}
		}
		for _, p := range children {
			name := tree.Name(p.Key)
			if name == key {
				node = p.Value
				continue
			}
			path := strings.Join(append(slices.Clone(c.Key[:depth]), name), ".")
			e := Entry{Path: path, Kind: kind(p.Value)}
			e.Tensors, e.Bytes = weigh(p.Value)
			out = append(out, e)
		}
	}
	return out
}

// weigh counts the tensors in v and their bytes. Lazy values are not read: a
// directory's tensors are none.
func weigh(v pickle.Value) (tensors int, bytes int64) {
	tree.Walk(v, func(_ tree.Path, v pickle.Value) bool {
		if t, ok := v.(*tensor.Tensor); ok {
			tensors, bytes = tensors+1, bytes+t.Bytes()
		}
		return true
	})
	return tensors, bytes
}

// kind says in words what v is.
func kind(v pickle.Value) string {
	v, err := tree.Resolve(v)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	if d, ok := pickle.AsDict(v); ok {
		tensors := 0
		for _, p := range d.Pairs {
			if _, ok := p.Value.(*tensor.Tensor); ok {
				tensors++
			}
		}
		return fmt.Sprintf("dict of %d entries, %d of them tensors", len(d.Pairs), tensors)
	}
	switch v := v.(type) {
	case *tensor.Tensor:
		return fmt.Sprintf("tensor %s %v", v.DType, v.Shape)
	case *pickle.List:
		return fmt.Sprintf("list of %d", len(v.Items))
	case *pickle.Tuple:
		return fmt.Sprintf("tuple of %d", len(v.Items))
	case *pickle.Object:
		return "object of " + v.Class.Module + "." + v.Class.Name
	case string:
		return "str " + tree.Describe(v)
	case bool, int64, float64:
		return fmt.Sprintf("%T %v", v, v)
	}
	return tree.Describe(v)
}
