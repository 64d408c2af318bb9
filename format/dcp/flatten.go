package dcp

import (
	"math/big"
	"strconv"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Sharded is a leaf of a tree to be written: a tensor that ranks hold parts of,
// cut along dimension Dim. Part r is what rank r holds and is written into rank
// r's file; parts without elements hold nothing and may be nil.
type Sharded struct {
	Dim   int
	Parts []*tensor.Tensor
}

// whole is the type and shape of the tensor that the parts make.
func (s *Sharded) whole() (*tensor.Tensor, error) {
	var t *tensor.Tensor
	for rank, part := range s.Parts {
		switch {
		case part == nil:
			continue
		case t == nil:
			if s.Dim < 0 || s.Dim >= len(part.Shape) {
				return nil, fault.New(fault.Internal, "a tensor of shape %v is sharded along dimension %d", part.Shape, s.Dim)
			}
			t = &tensor.Tensor{DType: part.DType, Shape: append([]int64(nil), part.Shape...), RequiresGrad: part.RequiresGrad}
			continue
		case part.DType != t.DType || len(part.Shape) != len(t.Shape):
			return nil, fault.New(fault.Internal, "rank %d's part is %s, and another is %s", rank, tree.Describe(part), tree.Describe(t))
		}
		for d := range t.Shape {
			switch {
			case d == s.Dim:
				t.Shape[d] += part.Shape[d]
			case t.Shape[d] != part.Shape[d]:
				return nil, fault.New(fault.Internal, "rank %d's part has the shape %v, which does not fit %v", rank, part.Shape, t.Shape)
			}
		}
	}
	if t == nil {
		return nil, fault.New(fault.Internal, "a sharded tensor has no part")
	}
	return t, nil
}

const (
	// mostNested is how deep a tree may nest: what Python can pickle, and half
	// of what it can recurse.
	mostNested = 500
	// mostNodes bounds the walk of a tree that shares its parts: flattened, it can
	// be exponentially large. A million items are a quarter of this.
	mostNodes = 1 << 22
	// mostDropped is how many empty dicts are named.
	mostDropped = 1000
)

// flattener walks a tree as torch's planner does and collects its items.
type flattener struct {
	m       *Metadata
	leaves  []pickle.Value // by item: a value, *tensor.Tensor or *Sharded
	dropped []string       // empty dicts

	names   []string // of the steps so far
	path    []pickle.Value
	steps   map[pickle.Value]int32
	nodes   int
	tensors map[*pickle.List]bool // whether a list holds a tensor or a dict
}

// flatten collects the items of a tree. Dicts are always descended, and their
// keys become strings; lists only where they hold a tensor or a dict, in them or
// in lists in them; everything else is one item.
func flatten(root pickle.Value) (*flattener, error) {
	f := &flattener{
		m:       &Metadata{Planned: true, transforms: [][]string{nil}, byName: make(map[string]int32)},
		steps:   make(map[pickle.Value]int32),
		tensors: make(map[*pickle.List]bool),
	}
	if _, ok := pickle.AsDict(root); !ok {
		return nil, fault.New(fault.Internal, "the root of the tree is %s, not a dict", tree.Describe(root))
	}
	if err := f.walk(root); err != nil {
		return nil, fault.Within(err, "", f.name())
	}
	return f, nil
}

// name is the flattened name of the node that is being walked.
func (f *flattener) name() string { return strings.Join(f.names, ".") }

func (f *flattener) walk(v pickle.Value) error {
	if f.nodes++; f.nodes > mostNodes {
		return fault.New(fault.Resource, "the tree has more than %d values when its shared parts are written out", mostNodes)
	}
	if len(f.path) > mostNested {
		return fault.New(fault.Unsupported, "the tree nests deeper than %d, or contains itself", mostNested)
	}
	v, err := tree.Resolve(v)
	if err != nil {
		return err
	}
	if dict, ok := pickle.AsDict(v); ok {
		if len(dict.Pairs) == 0 && len(f.path) > 0 && len(f.dropped) < mostDropped {
			f.dropped = append(f.dropped, f.name())
		}
		for _, p := range dict.Pairs {
			key, err := pythonString(p.Key)
			if err != nil {
				return err
			}
			if err := f.descend(key, key, p.Value); err != nil {
				return err
			}
		}
		return nil
	}
	if list, ok := v.(*pickle.List); ok {
		holds, err := f.holdsTensor(list, 0)
		if err != nil {
			return err
		}
		if holds {
			for i, item := range list.Items {
				if err := f.descend(int64(i), strconv.Itoa(i), item); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return f.add(v)
}

// descend walks a child. On an error the step stays, to tell where.
func (f *flattener) descend(step pickle.Value, name string, child pickle.Value) error {
	f.path, f.names = append(f.path, step), append(f.names, name)
	if err := f.walk(child); err != nil {
		return err
	}
	f.path, f.names = f.path[:len(f.path)-1], f.names[:len(f.names)-1]
	return nil
}

// add makes an item of a leaf.
func (f *flattener) add(v pickle.Value) error {
	item := Item{FQN: f.name()}
	switch v := v.(type) {
	case *tensor.Tensor:
		item.describe(v)
	case *Sharded:
		t, err := v.whole()
		if err != nil {
			return err
		}
		item.describe(t)
	}
	if _, taken := f.m.byName[item.FQN]; taken {
		return fault.New(fault.Unsupported, "two values of the tree have this name when it is flattened").
			WithHint("rename one: torch joins keys with dots, and cannot save both")
	}
	f.m.byName[item.FQN] = int32(len(f.m.Items))
	f.m.setPath(&item, f.path, f.steps)
	f.m.Items = append(f.m.Items, item)
	f.leaves = append(f.leaves, v)
	return nil
}

// describe takes over what the metadata says of a tensor.
func (item *Item) describe(t *tensor.Tensor) {
	item.Tensor, item.DType, item.Shape, item.RequiresGrad = true, t.DType, t.Shape, t.RequiresGrad
}

// holdsTensor says whether a list is descended.
func (f *flattener) holdsTensor(list *pickle.List, depth int) (bool, error) {
	if holds, known := f.tensors[list]; known {
		return holds, nil
	}
	if depth > mostNested {
		return false, fault.New(fault.Unsupported, "a list nests deeper than %d, or contains itself", mostNested)
	}
	for _, item := range list.Items {
		item, err := tree.Resolve(item)
		if err != nil {
			return false, err
		}
		holds := false
		switch v := item.(type) {
		case *tensor.Tensor, *Sharded:
			holds = true
		case *pickle.List:
			if holds, err = f.holdsTensor(v, depth+1); err != nil {
				return false, err
			}
		default:
			_, holds = pickle.AsDict(v)
		}
		if holds {
			f.tensors[list] = true
			return true, nil
		}
	}
	f.tensors[list] = false
	return false, nil
}

// pythonString is str(key), which torch makes of every key of a dict.
func pythonString(key pickle.Value) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case int64:
		return strconv.FormatInt(key, 10), nil
	case *big.Int:
		return key.String(), nil
	case bool:
		if key {
			return "True", nil
		}
		return "False", nil
	case nil:
		return "None", nil
	}
	return "", fault.New(fault.Unsupported, "a dict has %s for a key, and only strings, integers, True, False and None can be flattened", tree.Describe(key))
}
