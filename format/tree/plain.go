package tree

import (
	"fmt"
	"math"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// plainDepth bounds how deep Plain looks into a value.
const plainDepth = 8

// Plain turns v into what encoding/json can hold: plain scalars as they are,
// lists and tuples as slices, dicts as maps; anything else, values nested
// deeper than 8 and floats that JSON lacks, as words.
func Plain(v pickle.Value) any { return plain(v, plainDepth) }

func plain(v pickle.Value, depth int) any {
	v, err := Resolve(v)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	if depth == 0 {
		return fmt.Sprintf("(nested %T)", v)
	}
	if d, ok := pickle.AsDict(v); ok {
		out := make(map[string]any, len(d.Pairs))
		for _, p := range d.Pairs {
			out[fmt.Sprint(p.Key)] = plain(p.Value, depth-1)
		}
		return out
	}
	switch v := v.(type) {
	case nil, bool, int64, string:
		return v
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return v
	case *pickle.List:
		return plainItems(v.Items, depth)
	case *pickle.Tuple:
		return plainItems(v.Items, depth)
	case *tensor.Tensor:
		return fmt.Sprintf("tensor %s %v", v.DType, v.Shape)
	case *pickle.Global:
		return v.Module + "." + v.Name
	case *pickle.Object:
		return "object of " + v.Class.Module + "." + v.Class.Name
	}
	return fmt.Sprintf("(%T)", v)
}

func plainItems(items []pickle.Value, depth int) []any {
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = plain(v, depth-1)
	}
	return out
}
