package gefen

import (
	"math/rand/v2"
	"testing"
)

func TestPairwiseSumVectors(t *testing.T) {
	type vector struct {
		In      array
		Lengths []int `json:"prefix_lengths"`
		Sums    array
	}
	for _, v := range goldenSpec[vector](t, "numpy_sum") {
		x := v.In.float64s(t)
		for i, want := range v.Sums.float64s(t) {
			if got := pairwise(x[:v.Lengths[i]]); got != want {
				t.Errorf("sum of %d: %v, expected %v", v.Lengths[i], got, want)
			}
		}
	}
}

// TestPairwiseFormsAgree compares the sums that are told apart by what is summed with
// that of an array.
func TestPairwiseFormsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for n := range 1500 {
		x, squares, equal := make([]float32, n), make([]float64, n), make([]float64, n)
		m, v := r.Float64(), r.NormFloat64()
		for i := range x {
			x[i] = float32(r.NormFloat64())
			d := float64(x[i]) - m
			squares[i] = d * d
			equal[i] = v
		}
		if got, want := pairwiseSquares(x, m), pairwise(squares); got != want {
			t.Errorf("%d squared deviations: %v, expected %v", n, got, want)
		}
		if got, want := pairwiseEqual(v, n), pairwise(equal); got != want {
			t.Errorf("%d times %v: %v, expected %v", n, v, got, want)
		}
		if got, want := pairwise(x), pairwise(widened(x)); got != want {
			t.Errorf("%d float32 values: %v, expected %v", n, got, want)
		}
	}
}

func widened(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
