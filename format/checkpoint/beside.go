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
	Path string // dotted
	Kind string // in words: "12 entries, 9 tensors", "int", ...
}

// Beside lists what stands beside the optimizer's state, level by level along
// Key.
func (c *Checkpoint) Beside() []Entry {
	var out []Entry
	node := c.Root
	for depth, key := range c.Key {
		dict, ok := pickle.AsDict(node)
		if !ok {
			return out
		}
		for _, p := range dict.Pairs {
			name := fmt.Sprint(p.Key)
			if name == key {
				node = p.Value
				continue
			}
			path := append(slices.Clone(c.Key[:depth]), name)
			out = append(out, Entry{strings.Join(path, "."), kind(p.Value)})
		}
	}
	return out
}

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
		return fmt.Sprintf("str %q", v)
	case nil:
		return "None"
	}
	return fmt.Sprintf("%T %v", v, v)
}
