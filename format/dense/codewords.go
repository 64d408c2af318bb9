package dense

import (
	"cmp"
	"math"
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/gefen"
)

// ordinal numbers the float32 values in their order; both zeros are 0.
type ordinal int32

func ordinalOf(v float32) ordinal {
	if b := math.Float32bits(v); b>>31 != 0 {
		return -ordinal(b &^ (1 << 31))
	}
	return ordinal(math.Float32bits(v))
}

func (o ordinal) float() float32 {
	if o < 0 {
		return math.Float32frombits(uint32(-o) | 1<<31)
	}
	return math.Float32frombits(uint32(o))
}

// one is the ordinal of 1, the largest codeword; -one is that of the smallest.
const one = ordinal(0x3f800000)

// span is the codewords, from low to high, that make one momentum with the
// magnitude of its block. It is a few neighbouring float32 values.
type span struct{ low, high ordinal }

// spanOf is the span of m in a block of a magnitude above 0 that no |m| exceeds;
// false where no codeword makes m, which then was never quantized in this block.
func spanOf(m, magnitude float32) (span, bool) {
	makes := func(o ordinal) bool { return float32(o.float()*magnitude) == m }
	middle := ordinalOf(m / magnitude)
	// A quotient's own rounding and that of the product are less than two values
	// together.
	for _, o := range [...]ordinal{middle, middle - 1, middle + 1, middle - 2, middle + 2} {
		if o >= -one && o <= one && makes(o) {
			return span{edge(o, -1, makes), edge(o, 1, makes)}, true
		}
	}
	return span{}, false
}

// edge is the last ordinal from o on in a direction for which makes holds, which
// it does without gaps. Spans are short but where products all but vanish.
func edge(o, direction ordinal, makes func(ordinal) bool) ordinal {
	at := func(step ordinal) ordinal { return min(max(o+direction*step, -one), one) }
	step := ordinal(1)
	for ; at(step) != o && makes(at(step)); step *= 2 {
		o = at(step)
	}
	for step /= 2; step > 0; step /= 2 {
		if makes(at(step)) {
			o = at(step)
		}
	}
	return o
}

// counted is a span with the number of elements that it is of.
type counted struct {
	span
	n int64
}

// mostSpans is how many different spans are held. Those of 256 codewords are a few
// thousand at most.
const mostSpans = 1 << 15

// census gathers the spans of many elements.
type census struct {
	recent   [1 << 12]counted // by a hash, to keep most elements from the map
	all      map[span]int64
	overfull bool // there are too many for one codebook
}

// add counts an element. It says whether there is still a codebook that may be
// all elements'.
func (c *census) add(s span) bool {
	h := (uint32(s.low)*0x9e3779b1 ^ uint32(s.high-s.low)*0x85ebca6b) >> 20
	at := &c.recent[h]
	if at.span != s {
		c.keep(*at)
		*at = counted{span: s}
	}
	at.n++
	return !c.overfull
}

func (c *census) keep(s counted) {
	if s.n == 0 {
		return
	}
	if c.all == nil {
		c.all = map[span]int64{}
	}
	c.all[s.span] += s.n
	if len(c.all) > mostSpans {
		c.reduce()
	}
}

// reduce keeps only the spans that are needed.
func (c *census) reduce() []counted {
	spans := make([]counted, 0, len(c.all))
	for s, n := range c.all {
		spans = append(spans, counted{s, n})
	}
	spans = innermost(spans)
	clear(c.all)
	for _, s := range spans {
		c.all[s.span] = s.n
	}
	c.overfull = c.overfull || len(spans) > mostSpans/2 || !fits(spans)
	return spans
}

// result is the spans of all elements; false if no codebook has a codeword in
// each.
func (c *census) result() ([]counted, bool) {
	for i := range c.recent {
		c.keep(c.recent[i])
		c.recent[i] = counted{}
	}
	spans := c.reduce()
	return spans, !c.overfull
}

// innermost leaves out the spans that have another within them, as a codeword in
// the one is in the other too. The rest is in order, by low as by high.
func innermost(spans []counted) []counted {
	slices.SortFunc(spans, func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.high, b.high), cmp.Compare(b.low, a.low))
	})
	out := spans[:0]
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.low <= out[last].low {
			out[last].n += s.n
			continue
		}
		out = append(out, s)
	}
	return out
}

// codeword is one that is in use.
type codeword struct {
	value float32
	n     int64 // elements
}

// codewords are the fewest, -1 and +1 among them, that have one in each of the
// spans, which are innermost and in order.
func codewords(spans []counted) []codeword {
	out := []codeword{{value: -1}}
	last := codeword{value: 1}
	for i := 0; i < len(spans); {
		s := spans[i]
		switch {
		case s.low == -one:
			out[0].n += s.n
			i++
		case s.high == one:
			last.n += s.n
			i++
		default:
			// All that reach the end of the first have one codeword; those that have
			// +1 too need it not.
			n, low := int64(0), s.low
			for ; i < len(spans) && spans[i].low <= s.high && spans[i].high < one; i++ {
				n, low = n+spans[i].n, spans[i].low
			}
			out = append(out, codeword{(low + (s.high-low)/2).float(), n})
		}
	}
	return append(out, last)
}

// fits says whether the spans have a codebook.
func fits(spans []counted) bool { return len(codewords(spans)) <= checkpoint.Codewords }

// codebookOf has the codewords and, between them, as many more as there is room
// for. Of those in no use nothing is left in a dense state, so they go where they
// help most: where the quantization error would be greatest if elements lay
// between two codewords as densely as at them.
func codebookOf(used []codeword) *gefen.Codebook {
	between := make([]int, len(used)-1) // codewords put after each
	loss := func(i int) float64 {
		width := (float64(used[i+1].value) - float64(used[i].value)) / float64(between[i]+1)
		return float64(used[i].n+used[i+1].n+1) * width * width
	}
	for range checkpoint.Codewords - len(used) {
		worst := 0
		for i := range between {
			if loss(i) > loss(worst) {
				worst = i
			}
		}
		between[worst]++
	}
	var book gefen.Codebook
	at := 0
	for i, w := range used {
		book[at] = w.value
		at++
		if i == len(between) {
			break
		}
		from, width := float64(w.value), float64(used[i+1].value)-float64(w.value)
		for k := range between[i] {
			book[at] = float32(from + width*float64(k+1)/float64(between[i]+1))
			at++
		}
	}
	return &book
}
