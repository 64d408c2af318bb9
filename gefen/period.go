package gefen

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// PeriodRule holds the options of the optimizer that decide a block length
// before any search.
type PeriodRule struct {
	Force1D, Force2D bool     // period 1 for parameters of one or two dimensions
	Substrings       []string // period 1 for parameters whose name contains one of these
}

// one says whether the rule demands period 1 for a parameter of the given whole
// shape.
func (r PeriodRule) one(name string, shape []int64) bool {
	return r.Force1D && len(shape) == 1 || r.Force2D && len(shape) == 2 ||
		slices.ContainsFunc(r.Substrings, func(s string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(s)) })
}

// smallestPeriod is the least block length that a search may find; below it a
// block costs more than it saves.
const smallestPeriod = 8

// largestPlainPeriod caps the block length of a shard in which no structure is
// found.
const largestPlainPeriod = 2048

// FindPeriod is the block length that Gefen chooses on CPU for the flattened
// local values x of a parameter with the given name and whole shape: squared
// gradients natively, the second moment itself when a dense state is loaded. NaN
// and infinities are refused, as their order is not defined.
func FindPeriod(x []float64, name string, shape []int64, r PeriodRule) (int, error) {
	if len(x) <= 1 || r.one(name, shape) {
		return 1, nil
	}
	for i, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%s: element %d is %v, expected a finite number", name, i, v)
		}
	}
	return orPlain(searchPeriod(x), len(x), shape), nil
}

// FindPeriodOfRuns is FindPeriod for values that are constant over runs: run i
// has length[i] elements of value[i]. It takes time by the run, not by the
// element, but where two block lengths are all but tied.
func FindPeriodOfRuns(value []float64, length []int, name string, shape []int64, r PeriodRule) (int, error) {
	n := 0
	for i, v := range value {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%s: run %d is of %v, expected a finite number", name, i, v)
		}
		n += length[i]
	}
	if n <= 1 || r.one(name, shape) {
		return 1, nil
	}
	return orPlain(searchRuns(value, length, n), n, shape), nil
}

// orPlain is a period that a search found, or where that is too short the one of
// a shard without structure.
func orPlain(found, n int, shape []int64) int {
	if found >= smallestPeriod {
		return found
	}
	return plainPeriod(n, shape)
}

// blockError is the root of the mean variance within blocks of p elements, all
// sums as numpy takes them. scratch is as long as x.
func blockError(x []float64, p int, scratch []float64) float64 {
	blocks := len(x) / p
	vars := scratch[:0]
	square := scratch[blocks:]
	if p < 2 || len(square) < p { // one block, or p = 1
		square = make([]float64, p)
	}
	square = square[:p]
	for at := 0; at < len(x); at += p {
		block := x[at : at+p]
		mean := pairwise(block) / float64(p)
		for i, v := range block {
			d := v - mean
			square[i] = d * d
		}
		vars = append(vars, pairwise(square)/float64(p))
	}
	return math.Sqrt(pairwise(vars) / float64(blocks))
}

// plainPeriod is the block length where no structure is found: the last
// dimension, or the largest divisor up to 2048, whichever is larger, and 1 where
// neither reaches 8.
func plainPeriod(n int, shape []int64) int {
	if n < smallestPeriod {
		return 1
	}
	best := 1
	if len(shape) >= 2 {
		if last := shape[len(shape)-1]; last >= smallestPeriod && last <= int64(n) && int64(n)%last == 0 {
			best = int(last)
		}
	}
	for _, p := range Divisors(n) {
		if p >= smallestPeriod && p <= largestPlainPeriod {
			best = max(best, p)
		}
	}
	return best
}

// Divisors are the divisors of n, n itself included, in order.
func Divisors(n int) []int {
	var out []int
	for d := 1; d <= n/d; d++ {
		if n%d == 0 {
			out = append(out, d)
			if d != n/d {
				out = append(out, n/d)
			}
		}
	}
	slices.SortFunc(out, cmp.Compare[int])
	return out
}

// pairwise is numpy's sum of a contiguous run of float64 values: eight
// accumulators up to 128 values, halves of a multiple of eight above.
func pairwise(a []float64) float64 {
	n := len(a)
	if n < 8 {
		s := 0.0
		for _, v := range a {
			s += v
		}
		return s
	}
	if n > 128 {
		h := n / 2
		h -= h % 8
		return pairwise(a[:h]) + pairwise(a[h:])
	}
	r0, r1, r2, r3, r4, r5, r6, r7 := a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
	i := 8
	for ; i+8 <= n; i += 8 {
		b := a[i : i+8 : i+8]
		r0 += b[0]
		r1 += b[1]
		r2 += b[2]
		r3 += b[3]
		r4 += b[4]
		r5 += b[5]
		r6 += b[6]
		r7 += b[7]
	}
	s := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
	for _, v := range a[i:] {
		s += v
	}
	return s
}
