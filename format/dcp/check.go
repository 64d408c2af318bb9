package dcp

import (
	"cmp"
	"slices"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// check looks at each item as a whole: its chunks lie within the tensor, do not
// overlap, leave nothing out, and each has an entry in storage_data.
func (m *Metadata) check() {
	for i := range m.Items {
		item := &m.Items[i]
		if f := item.check(); f != nil {
			m.blame(item, f)
		}
	}
}

func (item *Item) check() *fault.Error {
	if !item.Tensor {
		if item.Chunks[0].Place.File == noFile {
			return fault.New(fault.Corrupt, "storage_data has no entry for it")
		}
		return nil
	}
	total, ok := tensor.Volume(item.Shape)
	if ok {
		_, ok = tensor.Volume([]int64{total, int64(max(1, item.DType.Size()))})
	}
	if !ok {
		return fault.New(fault.Corrupt, "a tensor of shape %v is larger than any file", item.Shape)
	}
	covered := int64(0)
	for i := range item.Chunks {
		c := &item.Chunks[i]
		if !within(c, item.Shape) {
			return fault.New(fault.Corrupt, "the chunk at %v of shape %v does not lie within the tensor's shape %v",
				c.Offset, c.Shape, item.Shape)
		}
		n := volume(c.Shape)
		if n > 0 && c.Place.File == noFile {
			return fault.New(fault.Corrupt, "storage_data has no entry for the chunk at %v of shape %v", c.Offset, c.Shape)
		}
		if covered += n; covered > total || covered < 0 {
			return overlapping(item)
		}
	}
	if covered == total && len(item.Chunks) == 1 {
		return nil
	}
	boxes := make([]*Chunk, 0, len(item.Chunks))
	for i := range item.Chunks {
		if volume(item.Chunks[i].Shape) > 0 {
			boxes = append(boxes, &item.Chunks[i])
		}
	}
	apart, ok := disjoint(boxes, 0)
	switch {
	case !ok:
		return fault.New(fault.Unsupported, "its %d chunks cut it in a way that gefenckpt cannot check", len(item.Chunks))
	case !apart:
		return overlapping(item)
	case covered < total:
		return fault.New(fault.Incomplete, "its chunks hold %d of %d elements of shape %v", covered, total, item.Shape).
			WithHint("a rank's part is missing")
	}
	return nil
}

func overlapping(item *Item) *fault.Error {
	return fault.New(fault.Corrupt, "its %d chunks overlap", len(item.Chunks))
}

func within(c *Chunk, shape []int64) bool {
	if len(c.Shape) != len(shape) {
		return false
	}
	for d := range shape {
		if c.Offset[d] > shape[d] || c.Shape[d] > shape[d]-c.Offset[d] {
			return false
		}
	}
	return true
}

const (
	fewBoxes  = 64   // compared each with each
	manyBoxes = 1024 // likewise, where no plane cuts them
	mostDepth = 32   // of cuts within cuts
)

// disjoint says whether no two boxes share an element; ok is false where that
// would take too long to say. Chunks of a tensor are cut from it along whole
// planes, and within the pieces again: boxes on either side of a plane that cuts
// none of them need not be compared.
func disjoint(boxes []*Chunk, depth int) (apart, ok bool) {
	if len(boxes) <= fewBoxes {
		return disjointPairs(boxes), true
	}
	if depth == mostDepth {
		return false, false
	}
	for d := range boxes[0].Shape {
		slices.SortFunc(boxes, func(a, b *Chunk) int { return cmp.Compare(a.Offset[d], b.Offset[d]) })
		var pieces [][]*Chunk
		first, end := 0, int64(0)
		for i, c := range boxes {
			if i > first && c.Offset[d] >= end {
				pieces = append(pieces, boxes[first:i])
				first = i
			}
			end = max(end, c.Offset[d]+c.Shape[d])
		}
		if first == 0 {
			continue
		}
		for _, piece := range append(pieces, boxes[first:]) {
			if apart, ok = disjoint(piece, depth+1); !ok || !apart {
				return apart, ok
			}
		}
		return true, true
	}
	if len(boxes) > manyBoxes {
		return false, false
	}
	return disjointPairs(boxes), true
}

func disjointPairs(boxes []*Chunk) bool {
	for i, a := range boxes {
		for _, b := range boxes[:i] {
			if overlap(a, b) {
				return false
			}
		}
	}
	return true
}

func overlap(a, b *Chunk) bool {
	for d := range a.Shape {
		if a.Offset[d] >= b.Offset[d]+b.Shape[d] || b.Offset[d] >= a.Offset[d]+a.Shape[d] {
			return false
		}
	}
	return true
}
