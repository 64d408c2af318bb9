package gefen

import (
	"math"
	"math/big"
)

// power is x^n for 0 <= x < 1 and n >= 0, correctly rounded: x is taken to the power
// in ever more bits until the result's error bound cannot change its rounding.
func power(x float64, n int64) float64 {
	switch {
	case n == 0:
		return 1
	case x == 0:
		return 0
	}
	// Every squaring doubles the relative error so far and adds half a unit, every
	// product adds half a unit: below 2n units in all.
	for bits := uint(128); ; bits *= 2 {
		p, exact := powerBits(x, n, bits)
		if r, _ := p.Float64(); exact {
			return r
		}
		margin := new(big.Float).SetMantExp(big.NewFloat(float64(n)), 1-int(bits))
		margin.Mul(margin.SetPrec(bits), p)
		low, _ := new(big.Float).Sub(p, margin).Float64()
		high, _ := new(big.Float).Add(p, margin).Float64()
		if low == high {
			return low
		}
	}
}

// powerBits is x^n with a mantissa of the given bits, and whether it is exact.
func powerBits(x float64, n int64, bits uint) (p *big.Float, exact bool) {
	square := new(big.Float).SetPrec(bits).SetFloat64(x)
	p = new(big.Float).SetPrec(bits).SetInt64(1)
	exact = true
	for ; ; n >>= 1 {
		if n&1 == 1 {
			p.Mul(p, square)
			exact = exact && p.Acc() == big.Exact
		}
		if n == 1 {
			return p, exact
		}
		square.Mul(square, square)
		exact = exact && square.Acc() == big.Exact
	}
}

// biasCorrection is 1 - beta^step: how much of a running mean of that age is there.
func biasCorrection(beta float64, step int64) float64 { return 1 - power(beta, step) }

// sqrt32 is the correctly rounded float32 root: 53 bits are enough for rounding
// the root of a 24-bit value twice to be harmless.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }
