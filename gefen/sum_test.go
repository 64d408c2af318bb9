package gefen

import (
	"testing"
)

func TestMeanOfSquaresVectors(t *testing.T) {
	type vector struct {
		Name string
		G    array
		Mean array
	}
	for _, v := range goldenSpec[vector](t, "mean_sq") {
		t.Run(v.Name, func(t *testing.T) {
			g, want := v.G.float32s(t), v.Mean.float32s(t)
			p := v.G.Shape[1]
			for b, w := range want {
				q := make([]float32, p)
				for i, x := range g[b*p : (b+1)*p] {
					q[i] = x * x
				}
				if got := Mean32(q); got != w {
					t.Errorf("block %d of %d values: mean %v, expected %v", b, p, got, w)
				}
			}
		})
	}
}

func TestSum32IsExactOnIntegers(t *testing.T) {
	for n := range 5000 {
		x := make([]float32, n)
		want := 0
		for i := range x {
			x[i] = float32(i % 97)
			want += i % 97
		}
		if got := Sum32(x); got != float32(want) {
			t.Fatalf("sum of %d integers is %v, expected %d", n, got, want)
		}
	}
}
