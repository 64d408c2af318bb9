package gefen

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestPowerIsCorrectlyRounded(t *testing.T) {
	for _, v := range []struct {
		x    float64
		n    int64
		want float64
	}{
		{0.9, 0, 1},
		{0, 0, 1},
		{0, 7, 0},
		{0.9, 1, 0.9},
		{0.5, 1074, math.SmallestNonzeroFloat64},
		{0.5, 1075, 0}, // halfway to zero, to even
		{0.9, 1 << 40, 0},
		// 3^34 has 54 bits: the power is halfway between two floats.
		{0.75, 34, float64(16677181699666569>>1) * math.Ldexp(1, -67)},
		{0.999, 1, 0.999},
		// glibc returns a last bit of 0.
		{0.95, 482, 0x1.422de2f38cf6fp-36},
	} {
		t.Run(fmt.Sprintf("%v^%d", v.x, v.n), func(t *testing.T) {
			if got := power(v.x, v.n); got != v.want {
				t.Errorf("%x, expected %x", got, v.want)
			}
		})
	}
	t.Run("any", rapid.MakeCheck(func(t *rapid.T) {
		x := rapid.OneOf(
			rapid.Float64Range(0, math.Nextafter(1, 0)),
			rapid.SampledFrom([]float64{0.9, 0.95, 0.98, 0.99, 0.999, 0.9999, 0.75, 0.5, math.Nextafter(1, 0)}),
		).Draw(t, "x")
		n := rapid.Int64Range(1, 3000).Draw(t, "n")
		want := new(big.Float).SetPrec(53 * 3000).SetInt64(1)
		for range n {
			want.Mul(want, new(big.Float).SetFloat64(x))
		}
		w, _ := want.Float64()
		if got := power(x, n); got != w {
			t.Errorf("%x^%d = %x, expected %x", x, n, got, w)
		}
	}))
}
