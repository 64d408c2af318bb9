package gefen

import "math"

// errors are the blockErrors E(p) of a shard that is quantized in blocks of p elements, as
// the reference reckons them: the root of the mean variance within blocks, in float64
// with all its rounding, sums as numpy takes them.
type blockErrors interface {
	// bounds encloses E(p) for each divisor p of the number of elements.
	bounds(divisors []int) []interval
	// exact is E(p) to the bit.
	exact(p int) float64
}

type interval struct{ lo, hi float64 }

// search finds the proper divisor p of n with the smallest score: by how much E(p) is
// above that of the divisor before; equal scores go to the smaller p. The first
// divisor, 1, has the score 1e-12.
//
// Exact errors cost two passes over the elements for each divisor, so they are only
// reckoned where their bounds cannot tell which score is smallest.
func search(n int, e blockErrors) int {
	divisors := Divisors(n)
	divisors = divisors[:len(divisors)-1]
	at := e.bounds(divisors)
	score := func(i int) interval {
		if i == 0 {
			return interval{1e-12, 1e-12}
		}
		return interval{at[i].lo - at[i-1].hi, at[i].hi - at[i-1].lo}
	}
	for {
		least := math.Inf(1)
		for i := range divisors {
			least = min(least, score(i).hi)
		}
		var open []int // divisors that may have the smallest score
		for i := range divisors {
			if score(i).lo <= least {
				open = append(open, i)
			}
		}
		if len(open) == 1 {
			return divisors[open[0]]
		}
		known := true
		for _, i := range open {
			for _, j := range [2]int{i - 1, i} {
				if i > 0 && at[j].lo < at[j].hi {
					v := e.exact(divisors[j])
					at[j] = interval{v, v}
					known = false
				}
			}
		}
		if known { // the open scores are equal
			return divisors[open[0]]
		}
	}
}

// boundSlack is by how much a bound on E^2, relative to the mean of x^2, may be off
// the square that the reference reckons. Exactly, n*E^2 is the sum of x^2, less that of
// (sum of the block)^2/p over the blocks. As sums are reckoned here, each is off by
// less than 400 units; the reference's square is off by 150 units of itself, which is
// not above the mean of x^2. All of that is below 2^-43.
const boundSlack = 0x1p-40

// enclose is the bound on E for n elements, from the sum of their squares and that
// of the squares of the sums of blocks of p.
func enclose(n, p int, squares, blocks float64) interval {
	mean := squares / float64(n)
	square := mean - blocks/float64(p)/float64(n)
	return interval{
		math.Sqrt(max(square-boundSlack*mean, 0)),
		math.Sqrt(max(square+boundSlack*mean, 0)),
	}
}
