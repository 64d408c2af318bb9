package tree

import (
	"bytes"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// Difference finds the first value in which two trees differ, and returns the
// path to it; nil where they hold the same data. Lazy values and the elements of
// tensors are read. Dicts may differ in the order of their keys. It ends on
// cycles, and is linear in shared values.
func Difference(a, b pickle.Value) (Path, error) {
	d := &differ{seen: map[[2]pickle.Value]bool{}}
	same, err := d.same(a, b)
	if same && err == nil {
		return nil, nil
	}
	path := make(Path, 0, len(d.path))
	for i := len(d.path) - 1; i >= 0; i-- {
		path = append(path, d.path[i])
	}
	return path, err
}

// differ compares trees. Its path grows from the difference up to the root.
type differ struct {
	seen map[[2]pickle.Value]bool // pairs of containers that are equal, or being compared
	path Path
}

func (d *differ) same(a, b pickle.Value) (bool, error) {
	a, err := Resolve(a)
	if err != nil {
		return false, err
	}
	if b, err = Resolve(b); err != nil {
		return false, err
	}
	if x, ok := a.(*tensor.Tensor); ok {
		y, ok := b.(*tensor.Tensor)
		if !ok {
			return false, nil
		}
		return SameTensor(x, y)
	}
	x, isDict := pickle.AsDict(a)
	p, isSequence := pickle.Sequence(a)
	if !isDict && !isSequence {
		return pickle.Equal(a, b), nil
	}
	y, isDict2 := pickle.AsDict(b)
	q, isSequence2 := pickle.Sequence(b)
	_, isList := a.(*pickle.List)
	_, isList2 := b.(*pickle.List)
	if isDict != isDict2 || isSequence != isSequence2 || isList != isList2 || isDict && len(x.Pairs) != len(y.Pairs) || len(p) != len(q) {
		return false, nil
	}
	if d.seen[[2]pickle.Value{a, b}] {
		return true, nil
	}
	d.seen[[2]pickle.Value{a, b}] = true
	if isDict {
		return d.samePairs(x, y)
	}
	for i := range p {
		if same, err := d.same(p[i], q[i]); !same || err != nil {
			return d.at(int64(i), err)
		}
	}
	return true, nil
}

func (d *differ) samePairs(x, y *pickle.Dict) (bool, error) {
	for i, p := range x.Pairs {
		other, ok := Child(y, p.Key)
		if !ok && pickle.Equal(p.Key, y.Pairs[i].Key) { // a key that is not looked up
			other, ok = y.Pairs[i].Value, true
		}
		if !ok {
			return d.at(p.Key, nil)
		}
		if same, err := d.same(p.Value, other); !same || err != nil {
			return d.at(p.Key, err)
		}
	}
	return true, nil
}

// at notes a step on the path to a difference.
func (d *differ) at(step pickle.Value, err error) (bool, error) {
	d.path = append(d.path, step)
	return false, err
}

// SameTensor says whether two tensors have the same type, shape and bytes.
func SameTensor(a, b *tensor.Tensor) (bool, error) {
	if a.DType != b.DType || len(a.Shape) != len(b.Shape) {
		return false, nil
	}
	for i := range a.Shape {
		if a.Shape[i] != b.Shape[i] {
			return false, nil
		}
	}
	const most = 1 << 16 // elements at once
	size := int64(a.DType.Size())
	step := min(a.Len(), most)
	x, y := make([]byte, step*size), make([]byte, step*size)
	for from := int64(0); from < a.Len(); from += step {
		n := min(step, a.Len()-from) * size
		if err := a.ReadAt(x[:n], from); err != nil {
			return false, err
		}
		if err := b.ReadAt(y[:n], from); err != nil {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
	}
	return true, nil
}
