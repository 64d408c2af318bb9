package gefen

import (
	"fmt"
	"runtime"
	"testing"
)

// benchmarkSize is the number of elements of the benchmarks' parameter.
const benchmarkSize = 1 << 22

// BenchmarkStep steps one parameter of 2048 x 2048 elements. testdata/bench_step.py
// times the reference on the same.
func BenchmarkStep(b *testing.B) {
	for _, v := range []struct {
		name     string
		period   int
		dtype    DType
		factored bool
	}{
		{"block", 2048, Float32, false},
		{"block-64", 64, Float32, false},
		{"block-1", 1, Float32, false},
		{"block-whole", benchmarkSize, Float32, false},
		{"block-bf16", 2048, BFloat16, false},
		{"factored", 2048, Float32, true},
		{"factored-bf16", 2048, BFloat16, true},
	} {
		for workers := 1; workers <= runtime.GOMAXPROCS(0); workers *= 2 {
			b.Run(fmt.Sprintf("%s/workers=%d", v.name, workers), func(b *testing.B) {
				g := synthetic(1, 0, 2048, 2048, 0.01)
				v.dtype.round(g)
				var h Histogram
				h.Add(g, v.period)
				book, _ := LearnCodebook(&h)
				shape := []int64{2048, 2048}
				o := Optimizer{
					Parameters: []Parameter{{
						Shape: shape, Local: shape, DType: v.dtype, Values: make([]float32, benchmarkSize),
						State: State{Period: v.period},
					}},
					Groups:   []Options{{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1}},
					Codebook: &book,
					Policy:   Policy{FactoredV2D: v.factored},
					Workers:  workers,
				}
				b.SetBytes(benchmarkSize) // one byte per element: MB/s are million elements
				for b.Loop() {
					if err := o.Step([][]float32{g}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkCopy copies what a step of the parameter reads and writes, gradient,
// values and indices: the limit that memory sets.
func BenchmarkCopy(b *testing.B) {
	g, p, q := make([]float32, benchmarkSize), make([]float32, benchmarkSize), make([]float32, benchmarkSize)
	index, to := make([]uint8, benchmarkSize), make([]uint8, benchmarkSize)
	b.SetBytes(benchmarkSize)
	for b.Loop() {
		copy(q, g)
		copy(q, p)
		copy(to, index)
	}
}
