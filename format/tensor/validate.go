package tensor

import (
	"cmp"
	"math"
	"slices"

	"gefenckpt/internal/fault"
)

// Volume is the product of shape, or false if a dimension is negative or the
// product passes 2^62.
func Volume(shape []int64) (int64, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d > 0 && n > (math.MaxInt64>>1)/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// Validate checks that the shape is sane, that every chunk lies within the shape
// and within its storage, and that the chunks hold every element exactly once.
// Its errors are Corrupt faults.
func (t *Tensor) Validate() error {
	n, ok := Volume(t.Shape)
	if _, ok2 := Volume(append([]int64{int64(t.DType.Size())}, t.Shape...)); !ok || !ok2 {
		return fault.New(fault.Corrupt, "shape %v is no tensor's", t.Shape)
	}
	if t.Content != nil {
		if t.Content.Size() != t.Bytes() {
			return fault.New(fault.Internal, "content of %d bytes for a tensor of %d", t.Content.Size(), t.Bytes())
		}
		return nil
	}
	var held int64
	for i := range t.Chunks {
		c := &t.Chunks[i]
		if err := c.check(t); err != nil {
			return err
		}
		v, _ := Volume(c.Shape)
		held += v
	}
	if a, b, overlap := t.overlap(); overlap {
		return fault.New(fault.Corrupt, "chunk %v+%v overlaps chunk %v+%v", a.Offset, a.Shape, b.Offset, b.Shape)
	}
	if held != n {
		return fault.New(fault.Corrupt, "chunks hold %d of the %d elements of %v", held, n, t.Shape)
	}
	return nil
}

// check says whether the chunk lies within t and within its storage.
func (c *Chunk) check(t *Tensor) error {
	if len(c.Offset) != len(t.Shape) || len(c.Shape) != len(t.Shape) {
		return fault.New(fault.Corrupt, "chunk %v+%v has other dimensions than %v", c.Offset, c.Shape, t.Shape)
	}
	for i := range c.Shape {
		if c.Offset[i] < 0 || c.Shape[i] < 0 || c.Offset[i] > t.Shape[i] || c.Shape[i] > t.Shape[i]-c.Offset[i] {
			return fault.New(fault.Corrupt, "chunk %v+%v reaches beyond %v", c.Offset, c.Shape, t.Shape)
		}
	}
	if c.Storage == nil {
		return nil
	}
	return CheckView(c.Shape, c.Stride, c.Start, c.Storage.Size()/int64(t.DType.Size()))
}

// CheckView says whether a view of the shape, with strides and a start in
// elements, stays within a storage of so many elements.
func CheckView(shape, stride []int64, start, elements int64) error {
	if len(shape) != len(stride) {
		return fault.New(fault.Corrupt, "%d strides for shape %v", len(stride), shape)
	}
	if slices.Contains(shape, 0) { // no element is looked at
		return nil
	}
	last := start
	for i, d := range shape {
		if stride[i] < 0 || (d > 1 && stride[i] > elements) {
			return fault.New(fault.Corrupt, "stride %d in a storage of %d elements", stride[i], elements)
		}
		if d > 1 && (d-1) > (math.MaxInt64-last)/max(stride[i], 1) {
			return fault.New(fault.Corrupt, "shape %v with strides %v passes any storage", shape, stride)
		}
		last += (d - 1) * stride[i]
	}
	if start < 0 || last >= elements {
		return fault.New(fault.Corrupt, "a view of elements [%d, %d] in a storage of %d", start, last, elements)
	}
	return nil
}

// overlap finds two chunks with a common element. Chunks are swept along the
// first dimension, which makes the many chunks of a sharded tensor cheap.
func (t *Tensor) overlap() (a, b *Chunk, found bool) {
	if len(t.Shape) == 0 {
		if len(t.Chunks) > 1 {
			return &t.Chunks[0], &t.Chunks[1], true
		}
		return nil, nil, false
	}
	full := make([]*Chunk, 0, len(t.Chunks))
	for i := range t.Chunks {
		if !slices.Contains(t.Chunks[i].Shape, 0) {
			full = append(full, &t.Chunks[i])
		}
	}
	slices.SortFunc(full, func(a, b *Chunk) int { return cmp.Compare(a.Offset[0], b.Offset[0]) })
	var open []*Chunk
	for _, c := range full {
		open = slices.DeleteFunc(open, func(o *Chunk) bool { return o.Offset[0]+o.Shape[0] <= c.Offset[0] })
		for _, o := range open {
			if intersect(o, c) {
				return o, c, true
			}
		}
		open = append(open, c)
	}
	return nil, nil, false
}

func intersect(a, b *Chunk) bool {
	for i := range a.Shape {
		if max(a.Offset[i], b.Offset[i]) >= min(a.Offset[i]+a.Shape[i], b.Offset[i]+b.Shape[i]) {
			return false
		}
	}
	return true
}
