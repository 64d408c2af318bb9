package gefen

import (
	"math"
	"slices"
)

// Quantizer finds the nearest codeword of one codebook. It is safe for
// concurrent use.
//
// The index is a step function of the value that never falls, whatever ties,
// repeated codewords and the rounding of distances do. So its steps are found once,
// by the definition, and a value is looked up by the upper half of its bits and one
// comparison.
type Quantizer struct {
	cells [1 << 16]cell
	steps []step
}

// step is a place where the index changes: from these bits of a value on, up to the
// next step, it is index. Bits of negative values grow as the values fall, so the
// index rises with the bits of positive values and falls with those of negative ones.
type step struct {
	bits  uint32
	index uint8
}

// cell is what values with the same upper 16 bits share: from the top down 32 bits
// that a value's are compared with, 16 with the number of the second step if there
// is one, and 8 each with the index from the first step on and by how much the one
// before is above it.
type cell uint64

func makeCell(bits uint32, second int, before, from uint8) cell {
	return cell(bits)<<32 | cell(second)<<16 | cell(from)<<8 | cell(before-from)
}

const (
	infinity = 0x7f800000 // bits of +Inf; those of NaN follow
	negative = 0x80000000 // the sign bit
)

// NewQuantizer finds the steps of a valid codebook.
func NewQuantizer(c *Codebook) *Quantizer {
	q := &Quantizer{}
	for _, sign := range []uint32{0, negative} {
		q.addSteps(c, sign, sign|infinity)
		q.steps = append(q.steps, step{sign | (infinity + 1), c.nearest(float32(math.NaN()))})
	}
	at := 0
	var before uint8
	for i := range q.cells {
		first, end := at, uint64(i+1)<<16
		for at < len(q.steps) && uint64(q.steps[at].bits) < end {
			at++
		}
		switch steps := q.steps[first:at]; len(steps) {
		case 0:
			q.cells[i] = makeCell(0, 0, before, before)
		case 1:
			q.cells[i] = makeCell(steps[0].bits, 0, before, steps[0].index)
		default:
			q.cells[i] = makeCell(steps[0].bits, first+1, before, steps[0].index)
		}
		if at > 0 {
			before = q.steps[at-1].index
		}
	}
	return q
}

// addSteps adds the step at first, and all of those up to last.
func (q *Quantizer) addSteps(c *Codebook, first, last uint32) {
	index := func(bits uint32) uint8 { return c.nearest(math.Float32frombits(bits)) }
	q.steps = append(q.steps, step{first, index(first)})
	for at, end := index(first), index(last); at != end; {
		// Bisect for the first bits with another index.
		lo, hi := first, last
		for hi-lo > 1 {
			if mid := lo + (hi-lo)/2; index(mid) == at {
				lo = mid
			} else {
				hi = mid
			}
		}
		first, at = hi, index(hi)
		q.steps = append(q.steps, step{first, at})
	}
}

// nearest is the definition: of the codewords around v the nearer one by distances
// rounded to float32, the left one on a tie. NaN gives 255.
func (c *Codebook) nearest(v float32) uint8 {
	i, _ := slices.BinarySearchFunc(c[:], v, func(x, v float32) int {
		if x >= v {
			return 1
		}
		return -1
	})
	left, right := max(i-1, 0), min(i, 255)
	if abs32(v-c[left]) <= abs32(v-c[right]) {
		return uint8(left)
	}
	return uint8(right)
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ negative) }

// Nearest sets dst[i] to the index of the codeword nearest to v[i]: the left one
// where two are as near by distances rounded to float32, of repeated codewords the
// first one for that very value and the last one for values above. NaN, which no
// momentum is, gives 255.
func (q *Quantizer) Nearest(dst []uint8, v []float32) {
	dst = dst[:len(v)]
	for i, x := range v {
		bits := math.Float32bits(x)
		c := q.cells[bits>>16]
		// All ones before the step, without a branch that would be guessed wrong
		// half the time.
		before := (int64(bits) - int64(c>>32)) >> 63
		index := uint8(c>>8) + uint8(c)&uint8(before)
		if second := c >> 16 & 0xffff; second != 0 {
			index = q.further(int(second), bits, index)
		}
		dst[i] = index
	}
}

// further is the index of a value in a cell with several steps, from the second on.
func (q *Quantizer) further(second int, bits uint32, index uint8) uint8 {
	for _, s := range q.steps[second:] {
		if s.bits > bits {
			break
		}
		index = s.index
	}
	return index
}

// AbsMax is the largest |x|, 0 for none. A NaN, which no state has, wins.
func AbsMax(x []float32) float32 {
	var m0, m1, m2, m3, m4, m5, m6, m7 uint32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		b := x[i : i+8 : i+8]
		m0 = max(m0, math.Float32bits(b[0])&^negative)
		m1 = max(m1, math.Float32bits(b[1])&^negative)
		m2 = max(m2, math.Float32bits(b[2])&^negative)
		m3 = max(m3, math.Float32bits(b[3])&^negative)
		m4 = max(m4, math.Float32bits(b[4])&^negative)
		m5 = max(m5, math.Float32bits(b[5])&^negative)
		m6 = max(m6, math.Float32bits(b[6])&^negative)
		m7 = max(m7, math.Float32bits(b[7])&^negative)
	}
	for _, v := range x[i:] {
		m0 = max(m0, math.Float32bits(v)&^negative)
	}
	return math.Float32frombits(max(m0, m1, m2, m3, m4, m5, m6, m7))
}

// Requantize quantizes momentum m in blocks of period elements: the magnitude of
// a block is its largest |m|, and the index of an element that of the codeword
// nearest to m/magnitude, 0 where the magnitude is. m is overwritten.
func (q *Quantizer) Requantize(index []uint8, magnitude []float32, m []float32, period int) {
	for b, at := 0, 0; at < len(m); b, at = b+1, at+period {
		block := m[at:min(at+period, len(m))]
		magnitude[b] = normalize(block)
		q.Nearest(index[at:at+len(block)], block)
	}
}

// normalize divides a block by its largest |x|, which it returns; a block of
// zeros, or with NaN, becomes zeros without a sign.
func normalize(block []float32) float32 {
	a := AbsMax(block)
	if !(a > 0) {
		clear(block)
		return a
	}
	for i, x := range block {
		block[i] = x / a
	}
	return a
}
