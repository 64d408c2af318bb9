package tensor

import (
	"cmp"
	"math"
	"slices"
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

// Box is a part of a tensor, in indices of each dimension.
type Box struct{ Offset, Shape []int64 }

// Within says whether the box lies in a tensor of the shape.
func (b Box) Within(shape []int64) bool {
	if len(b.Offset) != len(shape) || len(b.Shape) != len(shape) {
		return false
	}
	for i, n := range shape {
		if b.Offset[i] < 0 || b.Shape[i] < 0 || b.Offset[i] > n || b.Shape[i] > n-b.Offset[i] {
			return false
		}
	}
	return true
}

// overlaps says whether two boxes that are not empty share an element.
func (b Box) overlaps(o Box) bool {
	for i := range b.Shape {
		if b.Offset[i] >= o.Offset[i]+o.Shape[i] || o.Offset[i] >= b.Offset[i]+b.Shape[i] {
			return false
		}
	}
	return true
}

// How many boxes are compared each with each: few at once, more where no plane
// cuts between them.
const (
	fewBoxes  = 64
	manyBoxes = 1024
	mostCuts  = 32 // within cuts
)

// Overlap finds two boxes that share an element, all of them within one tensor.
// It reorders boxes. known is false where finding out would take too long.
//
// A tensor is sharded along whole planes, and each piece along planes again:
// boxes on two sides of a plane that goes through none of them need not be
// compared, so n chunks take n log n steps.
func Overlap(boxes []Box) (a, b Box, found, known bool) {
	boxes = slices.DeleteFunc(boxes, func(b Box) bool { return slices.Contains(b.Shape, 0) })
	return overlap(boxes, 0)
}

func overlap(boxes []Box, cuts int) (a, b Box, found, known bool) {
	if len(boxes) <= fewBoxes {
		return overlapAny(boxes)
	}
	for d := range boxes[0].Shape {
		if cuts == mostCuts {
			break
		}
		pieces := cut(boxes, d)
		if len(pieces) == 1 {
			continue
		}
		for _, piece := range pieces {
			if a, b, found, known = overlap(piece, cuts+1); found || !known {
				return a, b, found, known
			}
		}
		return a, b, false, true
	}
	if len(boxes) > manyBoxes {
		return a, b, false, false
	}
	return overlapAny(boxes)
}

// cut sorts boxes along dimension d and cuts them where a plane goes through
// none of them.
func cut(boxes []Box, d int) [][]Box {
	slices.SortFunc(boxes, func(a, b Box) int { return cmp.Compare(a.Offset[d], b.Offset[d]) })
	var pieces [][]Box
	first, end := 0, int64(0)
	for i, b := range boxes {
		if i > first && b.Offset[d] >= end {
			pieces = append(pieces, boxes[first:i])
			first = i
		}
		end = max(end, b.Offset[d]+b.Shape[d])
	}
	return append(pieces, boxes[first:])
}

func overlapAny(boxes []Box) (a, b Box, found, known bool) {
	for i, a := range boxes {
		for _, b := range boxes[:i] {
			if a.overlaps(b) {
				return a, b, true, true
			}
		}
	}
	return a, b, false, true
}
