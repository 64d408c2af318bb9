package gefen

import (
	"math"
	"sort"
)

// runs is the values of a shard that are constant over runs of elements.
type runs struct {
	equal[float32]
	at []int // by run: elements before it, and at last all of them
	// Sums of the elements before each run as high+low, so that a difference is not
	// off by more than its own rounding.
	high, low []float64
	squares   float64
}

// equal is values, each with its number of consecutive elements.
type equal[F float32 | float64] struct {
	value  []F
	length []int
}

func (r *equal[F]) add(v F, n int) {
	if last := len(r.value) - 1; last >= 0 && r.value[last] == v {
		r.length[last] += n
		return
	}
	r.value, r.length = append(r.value, v), append(r.length, n)
}

func newRuns(value []float32, length []int) *runs {
	n := len(value)
	r := &runs{
		equal: equal[float32]{value, length},
		at:    make([]int, n+1), high: make([]float64, n+1), low: make([]float64, n+1),
	}
	squares := make([]float64, n)
	for i, v := range value {
		sum := float64(length[i]) * float64(v)
		squares[i] = sum * float64(v)
		r.at[i+1] = r.at[i] + length[i]
		r.high[i+1], r.low[i+1] = addTo(r.high[i], r.low[i], sum)
	}
	r.squares = pairwise(squares)
	return r
}

// addTo adds x to high+low.
func addTo(high, low, x float64) (float64, float64) {
	s := high + x
	v := s - high
	low += (high - (s - v)) + (x - v)
	return s + low, low - ((s + low) - s)
}

// bounds adds up blocks by run. Where every block lies within one run none has a
// variance, and the reference reckons 0: sums of up to 2^29 equal float32 values are
// exact in float64.
func (r *runs) bounds(divisors []int) []interval {
	common := 0 // divides the ends of all runs
	for _, n := range r.length {
		common = gcd(common, n)
	}
	out := make([]interval, len(divisors))
	for i, p := range divisors {
		if common%p != 0 || p >= 1<<29 {
			out[i] = enclose(r.at[len(r.value)], p, r.squares, r.squareBlocks(p))
		}
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// squareBlocks sums the squares of the sums of blocks of p elements.
func (r *runs) squareBlocks(p int) float64 {
	total, lost := 0.0, 0.0 // what rounding has lost, to be made good
	add := func(x float64) {
		x -= lost
		t := total + x
		lost = (t - total) - x
		total = t
	}
	for run, at := 0, 0; run < len(r.value); {
		if whole := (r.at[run+1] - at) / p; whole > 0 { // blocks within the run
			sum := float64(p) * float64(r.value[run])
			add(float64(whole) * sum * sum)
			if at += whole * p; at == r.at[run+1] {
				run++
			}
			continue
		}
		last := r.find(run+1, at+p-1) // where the block ends
		sum := float64(r.at[run+1]-at) * float64(r.value[run])
		sum += (r.high[last] - r.high[run+1]) + (r.low[last] - r.low[run+1])
		at += p
		sum += float64(at-r.at[last]) * float64(r.value[last])
		add(sum * sum)
		if run = last; at == r.at[run+1] {
			run++
		}
	}
	return total
}

// find is the run of an element that is in this run or a later one. Mostly it is
// among the next.
func (r *runs) find(run, element int) int {
	step := 1
	for run+step < len(r.value) && r.at[run+step] <= element {
		run += step
		step *= 2
	}
	end := min(run+step, len(r.value))
	return run + sort.Search(end-run-1, func(i int) bool { return r.at[run+i+1] > element })
}

// exact reckons the variance within every block, then their mean, with runs of blocks
// where there are runs of elements.
func (r *runs) exact(p int) float64 {
	var variance equal[float64]
	from := reader[float32]{equal: &r.equal}
	blocks := r.at[len(r.value)] / p
	for b := 0; b < blocks; {
		same := max(from.left()/p, 1) // blocks
		again := from
		mean := from.sum(p, asIs) / float64(p)
		v := again.sum(p, func(v float32) float64 { d := float64(v) - mean; return float64(d * d) }) / float64(p)
		from.skip((same - 1) * p)
		variance.add(v, same)
		b += same
	}
	all := reader[float64]{equal: &variance}
	return math.Sqrt(all.sum(blocks, asIs) / float64(blocks))
}

func asIs[F float32 | float64](v F) float64 { return float64(v) }

// reader reads elements in order.
type reader[F float32 | float64] struct {
	*equal[F]
	run, used int // the run of the next element, and how many of it were read
}

// left is how many elements are left of the run.
func (r *reader[F]) left() int {
	if r.run >= len(r.value) {
		return 0
	}
	return r.length[r.run] - r.used
}

// skip skips n elements of the run.
func (r *reader[F]) skip(n int) {
	if r.used += n; r.left() == 0 {
		r.run, r.used = r.run+1, 0
	}
}

// sum is numpy's sum of f of the next n elements.
func (r *reader[F]) sum(n int, f func(F) float64) float64 {
	switch {
	case n <= r.left():
		v := r.value[r.run]
		r.skip(n)
		return pairwiseEqual(f(v), n)
	case n > pairwiseBlock:
		h := pairwiseHalf(n)
		first := r.sum(h, f)
		return first + r.sum(n-h, f)
	}
	var few [pairwiseBlock]float64
	for at := 0; at < n; {
		k := min(r.left(), n-at)
		v := f(r.value[r.run])
		for i := range few[at : at+k] {
			few[at+i] = v
		}
		r.skip(k)
		at += k
	}
	return pairwiseFew(few[:n])
}
