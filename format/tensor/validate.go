package tensor

import (
	"slices"

	"gefenckpt/internal/fault"
)

// Validate checks that the shape is sane, that every chunk lies within the shape
// and within its storage, and that the chunks hold every element exactly once.
//
// Its errors are faults: Corrupt where the tensor contradicts itself, Incomplete
// where chunks leave elements out, Unsupported for thousands of chunks that
// no plane tells apart, Internal for content of another size.
func (t *Tensor) Validate() error {
	n, ok := Volume(t.Shape)
	if ok {
		_, ok = Volume([]int64{n, int64(t.DType.Size())})
	}
	if !ok {
		return fault.New(fault.Corrupt, "shape %v is no tensor's", t.Shape)
	}
	if t.Content != nil {
		if t.Content.Size() != t.Bytes() {
			return fault.New(fault.Internal, "content of %d bytes for a tensor of %d", t.Content.Size(), t.Bytes())
		}
		return nil
	}
	boxes := make([]Box, len(t.Chunks))
	for i := range t.Chunks {
		c := &t.Chunks[i]
		boxes[i] = Box{c.Offset, c.Shape}
		if !boxes[i].Within(t.Shape) {
			return fault.New(fault.Corrupt, "chunk %v+%v does not lie within the shape %v", c.Offset, c.Shape, t.Shape)
		}
		if err := CheckView(c.Shape, c.Stride, c.Start, c.Storage.Size()/int64(t.DType.Size())); err != nil {
			return err
		}
	}
	a, b, found, known := Overlap(boxes)
	switch {
	case found:
		return fault.New(fault.Corrupt, "chunk %v+%v overlaps chunk %v+%v", a.Offset, a.Shape, b.Offset, b.Shape)
	case !known:
		return fault.New(fault.Unsupported, "%d chunks cut the shape %v in a way that cannot be checked", len(t.Chunks), t.Shape)
	}
	held := int64(0)
	for i := range t.Chunks {
		v, _ := Volume(t.Chunks[i].Shape)
		held += v
	}
	if held != n {
		return fault.New(fault.Incomplete, "chunks hold %d of the %d elements of %v", held, n, t.Shape)
	}
	return nil
}

// CheckView says whether a view of the shape, with strides and a start in
// elements, stays within a storage of so many elements. The shape must have a
// [Volume].
func CheckView(shape, stride []int64, start, elements int64) error {
	if len(shape) != len(stride) {
		return fault.New(fault.Corrupt, "%d strides for shape %v", len(stride), shape)
	}
	if slices.Contains(shape, 0) { // no element is looked at
		return nil
	}
	last, inside := start, start >= 0 && start < elements
	for i := 0; inside && i < len(shape); i++ {
		n, step := shape[i], stride[i]
		switch {
		case step < 0:
			inside = false
		case n > 1 && step > 0:
			if inside = n-1 <= (elements-1-last)/step; inside {
				last += (n - 1) * step
			}
		}
	}
	if !inside {
		return fault.New(fault.Corrupt, "a view of shape %v, strides %v and offset %d reaches beyond its storage of %d elements", shape, stride, start, elements)
	}
	return nil
}
