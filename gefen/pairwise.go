package gefen

// numpy adds a contiguous run of float64 values with eight accumulators up to 128
// values, and as the sum of its halves above.
const (
	pairwiseLanes = 8
	pairwiseBlock = 128
)

// pairwiseHalf is how many of more than pairwiseBlock values are in the first half.
func pairwiseHalf(n int) int { return n / 2 &^ (pairwiseLanes - 1) }

// pairwise is numpy's sum of values, widened to float64.
func pairwise[F float32 | float64](a []F) float64 {
	if len(a) > pairwiseBlock {
		h := pairwiseHalf(len(a))
		return pairwise(a[:h]) + pairwise(a[h:])
	}
	return pairwiseFew(a)
}

// pairwiseFew sums no more than pairwiseBlock values.
func pairwiseFew[F float32 | float64](a []F) float64 {
	if len(a) < pairwiseLanes {
		s := 0.0
		for _, v := range a {
			s += float64(v)
		}
		return s
	}
	var r0, r1, r2, r3, r4, r5, r6, r7 float64
	i := 0
	for ; i+pairwiseLanes <= len(a); i += pairwiseLanes {
		b := a[i : i+pairwiseLanes : i+pairwiseLanes]
		r0 += float64(b[0])
		r1 += float64(b[1])
		r2 += float64(b[2])
		r3 += float64(b[3])
		r4 += float64(b[4])
		r5 += float64(b[5])
		r6 += float64(b[6])
		r7 += float64(b[7])
	}
	s := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
	for _, v := range a[i:] {
		s += float64(v)
	}
	return s
}

// pairwiseSquares is numpy's sum of the squared deviations of values from m.
func pairwiseSquares(a []float32, m float64) float64 {
	if len(a) > pairwiseBlock {
		h := pairwiseHalf(len(a))
		return pairwiseSquares(a[:h], m) + pairwiseSquares(a[h:], m)
	}
	var q [pairwiseBlock]float64
	for i, v := range a {
		d := float64(v) - m
		q[i&(pairwiseBlock-1)] = d * d
	}
	return pairwiseFew(q[:len(a)])
}

// pairwiseEqual is numpy's sum of n values v.
func pairwiseEqual(v float64, n int) float64 {
	if n > pairwiseBlock {
		h := pairwiseHalf(n)
		return pairwiseEqual(v, h) + pairwiseEqual(v, n-h)
	}
	s := 0.0
	if n >= pairwiseLanes {
		for range n / pairwiseLanes {
			s += v
		}
		s *= pairwiseLanes // in three exact steps
	}
	for range n % pairwiseLanes {
		s += v
	}
	return s
}
