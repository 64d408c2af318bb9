package gefen

// Bins is the number of bins of a histogram.
const Bins = 4096

// Histogram counts values relative to the largest of their block, in 4096 equal
// bins from -1 to +1. A codebook is learnt from it.
type Histogram [Bins]int64

// Add counts x, whole blocks of period elements. Blocks of zeros count in the
// middle. Momentum that is not finite is never loaded; the reference counts infinite
// values in the first bin, and finite ones beside them and blocks with NaN in the
// middle.
func (h *Histogram) Add(x []float32, period int) {
	for at := 0; at < len(x); at += period {
		block := x[at:min(at+period, len(x))]
		a := AbsMax(block)
		if !(a > 0) {
			h[Bins/2] += int64(len(block))
			continue
		}
		for _, v := range block {
			// The sum is rounded to float32 before it is scaled by a power of two,
			// so values just below zero fall into the middle bin.
			bin := int(float32(v/a+1) * (Bins / 2))
			h[max(0, min(bin, Bins-1))]++
		}
	}
}

// centre of bin i, exact: (2i+1)/4096 - 1.
func centre(i int) float64 { return float64(2*i+1)/Bins - 1 }
