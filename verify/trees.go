package verify

import (
	"bytes"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
)

func matches(name string, only []string) bool {
	for _, s := range only {
		if strings.Contains(name, s) {
			return true
		}
	}
	return len(only) == 0
}

// firstDifference is the path of the first value in which two trees differ, ""
// for none. Dicts may differ in order, and in their class: a directory keeps
// none.
func firstDifference(a, b pickle.Value, at string) (string, error) {
	a, err := tree.Resolve(a)
	if err != nil {
		return at, err
	}
	if b, err = tree.Resolve(b); err != nil {
		return at, err
	}
	if x, ok := a.(*tensor.Tensor); ok {
		y, ok := b.(*tensor.Tensor)
		if same, err := sameTensor(x, y); !ok || !same || err != nil {
			return at, err
		}
		return "", nil
	}
	if x, ok := pickle.AsDict(a); ok {
		y, ok := pickle.AsDict(b)
		if !ok || len(x.Pairs) != len(y.Pairs) {
			return at, nil
		}
		for _, p := range x.Pairs {
			key := tree.Path{p.Key}.String()
			other, ok := tree.Child(y, p.Key)
			if !ok {
				if other, ok = y.Get(key); !ok { // a directory turns keys into strings
					return at + "." + key, nil
				}
			}
			if diff, err := firstDifference(p.Value, other, at+"."+key); diff != "" {
				return diff, err
			}
		}
		return "", nil
	}
	x, ok := pickle.Sequence(a)
	y, ok2 := pickle.Sequence(b)
	if ok && ok2 && len(x) == len(y) {
		for i := range x {
			if diff, err := firstDifference(x[i], y[i], at+"."+tree.Path{int64(i)}.String()); diff != "" {
				return diff, err
			}
		}
		return "", nil
	}
	if !pickle.Equal(a, b) {
		return at, nil
	}
	return "", nil
}

// sameTensor compares types, shapes and bytes.
func sameTensor(a, b *tensor.Tensor) (bool, error) {
	if b == nil || a.DType != b.DType || len(a.Shape) != len(b.Shape) || a.Len() != b.Len() {
		return false, nil
	}
	size := int64(a.DType.Size())
	step := min(a.Len(), 1<<16)
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
