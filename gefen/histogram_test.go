package gefen

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestHistogramEqualsItsDefinition counts by the definition, each operation rounded.
func TestHistogramEqualsItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period, blocks := rapid.IntRange(1, 40).Draw(t, "period"), rapid.IntRange(1, 10).Draw(t, "blocks")
		value := rapid.OneOf(
			rapid.Float32Range(-1, 1), rapid.Float32Range(-1e-7, 1e-7), rapid.SampledFrom([]float32{0, 1, -1, math.SmallestNonzeroFloat32}),
		)
		x := rapid.SliceOfN(value, period*blocks, period*blocks).Draw(t, "values")
		if rapid.Bool().Draw(t, "with zeros") {
			clear(x[:period])
		}
		var got, want Histogram
		got.Add(x, period)
		for at := 0; at < len(x); at += period {
			a := float32(0)
			for _, v := range x[at : at+period] {
				a = max(a, float32(math.Abs(float64(v))))
			}
			for _, v := range x[at : at+period] {
				if a > 0 {
					v /= a
				} else {
					v = 0
				}
				v++
				bin := math.Floor(float64(v) / (2.0 / Bins))
				want[int(min(max(bin, 0), Bins-1))]++
			}
		}
		if got != want {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("bin %d has %d, expected %d", i, got[i], want[i])
				}
			}
		}
	})
}

// TestHistogramOfNoNumbers has what the reference counts where values are not finite.
func TestHistogramOfNoNumbers(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	var h Histogram
	h.Add([]float32{1, nan, -1, 0, 1, inf, -inf, 0}, 4)
	want := Histogram{0: 2, Bins / 2: 6}
	if h != want {
		t.Errorf("%d in the first bin and %d in the middle, expected 2 and 6", h[0], h[Bins/2])
	}
}

func BenchmarkHistogram(b *testing.B) {
	const n = 1 << 18
	r := rand.New(rand.NewPCG(7, 8))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	var h Histogram
	for b.Loop() {
		h.Add(x, 512)
	}
	perSecond(b, n)
}
