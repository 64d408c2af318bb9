package tensor

import (
	"cmp"
	"slices"
)

// What is read with one call, to pick elements from: at most gatherSpan bytes,
// in which no two elements that follow each other are more than gatherGap bytes
// apart. A call costs about as much as copying a gap.
const (
	gatherSpan = 1 << 18
	gatherGap  = 1 << 12
)

// gather reads elements that lie apart: it cuts the flat range into boxes, and
// copies what each has in common with each chunk.
func (t *Tensor) gather(dst []byte, from int64) error {
	if len(dst) == 0 {
		return nil
	}
	size := int64(t.DType.Size())
	g := gatherer{t: t, size: size, dst: dst, from: from, stride: RowMajor(t.Shape)}
	return boxes(t.Shape, from, from+int64(len(dst))/size, g.box)
}

// boxes calls do with boxes that make up the flat range [from, to) of a tensor
// of the shape, at most two for each dimension. offset and shape are good until
// do returns.
func boxes(shape []int64, from, to int64, do func(offset, shape []int64) error) error {
	stride := RowMajor(shape)
	offset, box := make([]int64, len(shape)), make([]int64, len(shape))
	for from < to {
		// The box has any number of indices of dimension d, all of those behind
		// it, and one of those before it.
		d := 0
		for ; d < len(shape)-1; d++ {
			if from%stride[d] == 0 && from+stride[d] <= to {
				break
			}
		}
		rest := from
		for i, s := range stride {
			offset[i], rest = rest/s, rest%s
			box[i] = 1
			if i > d {
				box[i] = shape[i]
			}
		}
		step := int64(1)
		if len(shape) > 0 {
			box[d] = min(shape[d]-offset[d], (to-from)/stride[d])
			step = box[d] * stride[d]
		}
		if err := do(offset, box); err != nil {
			return err
		}
		from += step
	}
	return nil
}

// gatherer fills dst with elements from number from on.
type gatherer struct {
	t       *Tensor
	size    int64 // of an element, in bytes
	dst     []byte
	from    int64
	stride  []int64 // of the whole tensor, row-major
	c       *Chunk  // being read from
	scratch []byte
	axes    []axis
}

// axis is a dimension of a box: n indices, src elements apart in the storage
// and dst apart in the tensor.
type axis struct{ n, src, dst int64 }

// box copies what a box has in common with each chunk.
func (g *gatherer) box(offset, shape []int64) error {
	for i := range g.t.Chunks {
		g.c = &g.t.Chunks[i]
		src, dst, some := g.c.Start, -g.from, true
		g.axes = g.axes[:0]
		for d := range shape {
			lo := max(offset[d], g.c.Offset[d])
			n := min(offset[d]+shape[d], g.c.Offset[d]+g.c.Shape[d]) - lo
			src += (lo - g.c.Offset[d]) * g.c.Stride[d]
			dst += lo * g.stride[d]
			some = some && n > 0
			g.axes = append(g.axes, axis{n, g.c.Stride[d], g.stride[d]})
		}
		if !some {
			continue
		}
		g.simplify()
		if err := g.copy(g.axes, src, dst); err != nil {
			return err
		}
	}
	return nil
}

// simplify drops axes of one index, joins those that are one run in the storage
// and in the tensor, and puts the longest stride in the storage first.
func (g *gatherer) simplify() {
	kept := g.axes[:0]
	for _, a := range g.axes {
		if a.n == 1 {
			continue
		}
		if k := len(kept) - 1; k >= 0 && kept[k].src == a.n*a.src && kept[k].dst == a.n*a.dst {
			kept[k] = axis{kept[k].n * a.n, a.src, a.dst}
			continue
		}
		kept = append(kept, a)
	}
	slices.SortStableFunc(kept, func(a, b axis) int { return cmp.Compare(b.src, a.src) })
	g.axes = kept
}

// copy copies the elements of the axes, which begin at element src of the
// storage and at element dst of g.dst. It cuts the first axis in halves until the
// rest can be read at once.
func (g *gatherer) copy(axes []axis, src, dst int64) error {
	for len(axes) > 0 && axes[0].n == 1 {
		axes = axes[1:]
	}
	switch {
	case len(axes) == 0:
		return g.c.read(g.dst[dst*g.size:(dst+1)*g.size], src*g.size)
	case len(axes) == 1 && axes[0].src == 1 && axes[0].dst == 1:
		return g.c.read(g.dst[dst*g.size:(dst+axes[0].n)*g.size], src*g.size)
	}
	if span, ok := g.span(axes); ok {
		g.scratch = slices.Grow(g.scratch[:0], int(span))[:span]
		if err := g.c.read(g.scratch, src*g.size); err != nil {
			return err
		}
		g.scatter(axes, 0, dst)
		return nil
	}
	first := &axes[0]
	n, half := first.n, first.n/2
	defer func() { first.n = n }()
	first.n = half
	if err := g.copy(axes, src, dst); err != nil {
		return err
	}
	first.n = n - half
	return g.copy(axes, src+half*first.src, dst+half*first.dst)
}

// span is how many bytes of the storage the axes reach over, and whether they
// are worth reading at once.
func (g *gatherer) span(axes []axis) (bytes int64, ok bool) {
	elements := int64(1)
	for _, a := range slices.Backward(axes) {
		if (a.src-elements)*g.size > gatherGap {
			return 0, false
		}
		elements += (a.n - 1) * a.src
		if elements > gatherSpan/g.size {
			return 0, false
		}
	}
	return elements * g.size, true
}

// scatter copies elements from scratch, where they begin at element src.
func (g *gatherer) scatter(axes []axis, src, dst int64) {
	a := axes[0]
	if len(axes) > 1 {
		for range a.n {
			g.scatter(axes[1:], src, dst)
			src, dst = src+a.src, dst+a.dst
		}
		return
	}
	if a.src == 1 && a.dst == 1 {
		copy(g.dst[dst*g.size:(dst+a.n)*g.size], g.scratch[src*g.size:])
		return
	}
	for range a.n {
		copy(g.dst[dst*g.size:(dst+1)*g.size], g.scratch[src*g.size:])
		src, dst = src+a.src, dst+a.dst
	}
}
