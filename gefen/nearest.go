package gefen

import (
	"math"
	"slices"
)

// Quantizer finds the nearest codeword of one codebook. It is safe for
// concurrent use.
//
// The index is a step function of the value that never falls, whatever ties,
// repeated codewords and the rounding of distances do. So its steps are found
// once, by the definition, and a value is looked up by the upper half of its
// bits and one comparison.
type Quantizer struct {
	cells [1 << 16]cell
	steps []step
}

// step is a place where the index rises: from key on, it is index.
type step struct {
	key   uint32
	index uint8
}

// cell is what values with the same upper 16 bits of their key share.
type cell struct {
	key  uint32 // of its first step; no step: beyond every key
	lo   uint8  // index before key
	rise uint8  // what is added from key on
	more bool   // there are further steps
}

// orderedKey maps floats to integers in the same order; -0 comes before +0, NaN
// with a sign bit first and others last.
func orderedKey(v float32) uint32 {
	b := math.Float32bits(v)
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

func fromKey(k uint32) float32 {
	if k&(1<<31) != 0 {
		return math.Float32frombits(k ^ 1<<31)
	}
	return math.Float32frombits(^k)
}

// NewQuantizer finds the steps of a valid codebook.
func NewQuantizer(c *Codebook) *Quantizer {
	q := &Quantizer{}
	lowest, highest := orderedKey(float32(math.Inf(-1))), orderedKey(float32(math.Inf(1)))
	index := c.nearest(fromKey(lowest))
	for key := lowest; index < 255 && index != c.nearest(fromKey(highest)); {
		// Bisect for the first key with a higher index.
		lo, hi := key, highest
		for hi-lo > 1 {
			if mid := lo + (hi-lo)/2; c.nearest(fromKey(mid)) > index {
				hi = mid
			} else {
				lo = mid
			}
		}
		key, index = hi, c.nearest(fromKey(hi))
		q.steps = append(q.steps, step{key, index})
	}
	at, before := 0, c.nearest(fromKey(lowest))
	for i := range q.cells {
		end := uint64(i+1) << 16
		k := cell{key: math.MaxUint32, lo: before}
		for n := 0; at < len(q.steps) && uint64(q.steps[at].key) < end; n++ {
			if n == 0 {
				k.key, k.rise = q.steps[at].key, q.steps[at].index-before
			}
			k.more = n > 0
			before = q.steps[at].index
			at++
		}
		q.cells[i] = k
	}
	return q
}

// nearest is the definition: of the codewords around v the nearer one by
// distances rounded to float32, the left one on a tie. NaN gives 255.
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

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// Nearest sets dst[i] to the index of the codeword nearest to v[i]. NaN is no
// value that the optimizer makes: its index is 0 or 255.
func (q *Quantizer) Nearest(dst []uint8, v []float32) {
	dst = dst[:len(v)]
	for i, x := range v {
		key := orderedKey(x)
		k := &q.cells[key>>16]
		// All ones where key >= k.key, without a branch that would be guessed
		// wrong half the time.
		reached := uint8(^((int64(key) - int64(k.key)) >> 63))
		dst[i] = k.lo + k.rise&reached
		if k.more {
			dst[i] = q.search(key, k.lo)
		}
	}
}

// search finds the index in a cell with several steps.
func (q *Quantizer) search(key uint32, lo uint8) uint8 {
	i, _ := slices.BinarySearchFunc(q.steps, key, func(s step, key uint32) int {
		if s.key <= key {
			return -1
		}
		return 1
	})
	if i == 0 {
		return lo
	}
	return q.steps[i-1].index
}

// AbsMax is the largest |x|, 0 for none. A NaN, which no state has, wins.
func AbsMax(x []float32) float32 {
	var a, b, c, d uint32
	for ; len(x) >= 4; x = x[4:] {
		a = max(a, math.Float32bits(x[0])&^(1<<31))
		b = max(b, math.Float32bits(x[1])&^(1<<31))
		c = max(c, math.Float32bits(x[2])&^(1<<31))
		d = max(d, math.Float32bits(x[3])&^(1<<31))
	}
	for _, v := range x {
		a = max(a, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(max(a, b, c, d))
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
// zeros becomes zeros without a sign.
func normalize(block []float32) float32 {
	a := AbsMax(block)
	if a == 0 {
		clear(block)
		return 0
	}
	for i, x := range block {
		block[i] = x / a
	}
	return a
}
