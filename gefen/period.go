package gefen

import (
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
// and infinities are refused, as their order is not defined. Up to that many workers
// search; the result does not depend on it.
func FindPeriod(x []float32, name string, shape []int64, r PeriodRule, workers int) (int, error) {
	if value, length, ok := runsOf(x); ok {
		return FindPeriodOfRuns(value, length, name, shape, r)
	}
	if !finite(AbsMax(x)) {
		at := slices.IndexFunc(x, func(v float32) bool { return !finite(v) })
		return 0, fmt.Errorf("%s: element %d is %v, expected a finite number", name, at, x[at])
	}
	if len(x) <= 1 || r.one(name, shape) {
		return 1, nil
	}
	return orPlain(search(len(x), &dense{x, workers}), len(x), shape), nil
}

// FindPeriodOfRuns is FindPeriod for values that are constant over runs: length[i]
// consecutive elements are value[i]. It takes time and memory by the run, not by the
// element.
func FindPeriodOfRuns(value []float32, length []int, name string, shape []int64, r PeriodRule) (int, error) {
	n := 0
	for i, v := range value {
		if !finite(v) {
			return 0, fmt.Errorf("%s: run %d is of %v, expected a finite number", name, i, v)
		}
		if length[i] < 1 || length[i] > math.MaxInt-n {
			return 0, fmt.Errorf("%s: run %d has %d elements after %d", name, i, length[i], n)
		}
		n += length[i]
	}
	if n <= 1 || r.one(name, shape) {
		return 1, nil
	}
	return orPlain(search(n, newRuns(value, length)), n, shape), nil
}

// longRun is from which average length on runs of equal values are worth telling
// apart.
const longRun = 16

// runsOf tells runs of equal values apart if they are long.
func runsOf(x []float32) (value []float32, length []int, ok bool) {
	for at := 0; at < len(x); {
		if len(value) > len(x)/longRun {
			return nil, nil, false
		}
		bits := math.Float32bits(x[at])
		end := at + 1
		for ; end+4 <= len(x); end += 4 {
			b := x[end : end+4 : end+4]
			if (math.Float32bits(b[0])^bits)|(math.Float32bits(b[1])^bits)|(math.Float32bits(b[2])^bits)|(math.Float32bits(b[3])^bits) != 0 {
				break
			}
		}
		for end < len(x) && math.Float32bits(x[end]) == bits {
			end++
		}
		value, length = append(value, x[at]), append(length, end-at)
		at = end
	}
	return value, length, true
}

func finite(v float32) bool { return math.Float32bits(v)&infinity != infinity }

// orPlain is a period that a search found, or where that is too short the one of
// a shard without structure.
func orPlain(found, n int, shape []int64) int {
	if found >= smallestPeriod {
		return found
	}
	return plainPeriod(n, shape)
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
