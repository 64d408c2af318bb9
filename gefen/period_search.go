package gefen

import (
	"cmp"
	"math"
	"slices"
)

// search finds the proper divisor p of n with the smallest score: by how much the
// average variance within blocks of p elements is above that of the divisor
// before; equal scores go to the smaller p. The first divisor, 1, has the score
// 1e-12.
//
// What the reference compares are errors E(p) in float64 with all their rounding.
// Computing those costs three passes over the elements per divisor. But the sum
// over blocks of n*E^2 is Q - B(p), with Q the sum of x^2 and B(p) that of
// (sum of the block)^2/p, and the sums of the blocks of a divisor follow from those
// of a smaller one. As all terms are positive, both sums are known to a few ulps
// of Q, which leaves an interval for every E; only where intervals cannot tell
// which score is smallest are errors computed as the reference does.
type search struct {
	divisors []int
	lo, hi   []float64 // bounds of E, by divisor; equal where it is known
	exact    func(p int) float64
}

// screenSlack bounds, relative to the mean of x^2, by how much E^2 from sums and
// the reference's E^2 can each be off the true one, together. Sums are taken in
// halves down to runs of 256 per accumulator, so the relative error of each is
// below (256+log2(n))*2^-53, and there are a few levels from one divisor to the
// next; 2^-40 leaves room for thirty.
const screenSlack = 0x1p-40

func newSearch(n int, exact func(p int) float64) *search {
	d := Divisors(n)
	d = d[:len(d)-1] // n itself is none of them
	return &search{divisors: d, lo: make([]float64, len(d)), hi: make([]float64, len(d)), exact: exact}
}

// bound takes n*E^2 = q - b for divisor number i.
func (s *search) bound(i, n int, q, b float64) {
	square, slack := (q-b)/float64(n), screenSlack*q/float64(n)
	s.lo[i] = math.Sqrt(max(square-slack, 0))
	s.hi[i] = math.Sqrt(max(square+slack, 0))
}

// best is the winning divisor.
func (s *search) best() int {
	for {
		// score bounds of divisor i
		bounds := func(i int) (lo, hi float64) {
			if i == 0 {
				return 1e-12, 1e-12
			}
			return s.lo[i] - s.hi[i-1], s.hi[i] - s.lo[i-1]
		}
		least := math.Inf(1)
		for i := range s.divisors {
			_, hi := bounds(i)
			least = min(least, hi)
		}
		var open []int // that may have the smallest score
		for i := range s.divisors {
			if lo, _ := bounds(i); lo <= least {
				open = append(open, i)
			}
		}
		if len(open) == 1 {
			return s.divisors[open[0]]
		}
		settled := true
		for _, i := range open {
			for _, j := range []int{i, i - 1} {
				if i > 0 && s.lo[j] != s.hi[j] {
					e := s.exact(s.divisors[j])
					s.lo[j], s.hi[j] = e, e
					settled = false
				}
			}
		}
		if settled {
			// All scores are known, so those that are open are equal.
			return s.divisors[open[0]]
		}
	}
}

// searchPeriod searches the values of a shard.
func searchPeriod(x []float64) int {
	n := len(x)
	var scratch []float64
	s := newSearch(n, func(p int) float64 {
		if scratch == nil {
			scratch = make([]float64, n)
		}
		return blockError(x, p, scratch)
	})
	q := sumOfSquares(x)
	sums := map[int][]float64{1: x} // of blocks, by divisor
	for i, p := range s.divisors {
		if p == 1 {
			continue
		}
		from := largestBelow(s.divisors, p)
		sums[p] = blockSums(sums[from], p/from)
		s.bound(i, n, q, sumOfSquares(sums[p])/float64(p))
	}
	return s.best()
}

// sumOfSquares sums in halves, like pairwise, with as small an error, but not
// with its bits.
func sumOfSquares(a []float64) float64 {
	if len(a) > 1024 {
		h := len(a) / 2
		return sumOfSquares(a[:h]) + sumOfSquares(a[h:])
	}
	var s0, s1, s2, s3 float64
	for ; len(a) >= 4; a = a[4:] {
		s0 += a[0] * a[0]
		s1 += a[1] * a[1]
		s2 += a[2] * a[2]
		s3 += a[3] * a[3]
	}
	for _, v := range a {
		s0 += v * v
	}
	return (s0 + s1) + (s2 + s3)
}

// largestBelow is the largest of the divisors of n that divides p, p itself
// aside.
func largestBelow(divisors []int, p int) int {
	at, _ := slices.BinarySearchFunc(divisors, p, cmp.Compare[int])
	for at--; p%divisors[at] != 0; at-- {
	}
	return divisors[at]
}

// blockSums adds up every f consecutive values.
func blockSums(x []float64, f int) []float64 {
	out := make([]float64, len(x)/f)
	switch f {
	case 2:
		for i := range out {
			out[i] = x[2*i] + x[2*i+1]
		}
	case 3:
		for i := range out {
			out[i] = x[3*i] + x[3*i+1] + x[3*i+2]
		}
	default:
		for i := range out {
			out[i] = pairwise(x[i*f : (i+1)*f])
		}
	}
	return out
}

// searchRuns searches n values that are constant over runs. Where every run
// begins and ends with a block, no block has a variance, and the reference
// computes exactly 0: a float32 widened to float64 has bits to spare for sums of
// equal values.
func searchRuns(value []float64, length []int, n int) int {
	s := newSearch(n, func(p int) float64 {
		x := make([]float64, 0, n)
		for i, v := range value {
			for range length[i] {
				x = append(x, v)
			}
		}
		return blockError(x, p, make([]float64, n))
	})
	common := 0 // greatest common divisor of the runs' ends
	squares := make([]float64, len(value))
	for i, v := range value {
		common = gcd(common, length[i])
		squares[i] = float64(length[i]) * v * v
	}
	q := pairwise(squares)
	for i, p := range s.divisors {
		if common%p == 0 {
			continue // E is 0
		}
		s.bound(i, n, q, sumSquaresOfBlocks(value, length, p)/float64(p))
	}
	return s.best()
}

// sumSquaresOfBlocks sums the squares of the sums of blocks of p elements.
func sumSquaresOfBlocks(value []float64, length []int, p int) float64 {
	total, lost := 0.0, 0.0 // Kahan's sum, as there may be many blocks
	block, room := 0.0, p
	for i, v := range value {
		for left := length[i]; left > 0; {
			n, blocks := min(left, room), 1
			if room == p && left >= p { // whole blocks within the run
				n, blocks = p, left/p
			}
			block += float64(n) * v
			left -= n * blocks
			if room -= n; room == 0 {
				y := float64(blocks)*block*block - lost
				t := total + y
				lost = (t - total) - y
				total, block, room = t, 0, p
			}
		}
	}
	return total
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
