package gefen

import "math"

// FMA32 is a*b + c, rounded once to float32.
//
// The product of two float32 values has at most 48 bits and is exact in float64, so
// the float64 sum is rounded once whether or not the compiler fuses it. Rounding
// that to float32 is a second rounding, which can only go wrong where the float64
// sum is halfway between two float32 values.
func FMA32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	if maybeHalfway(s) {
		return roundOdd(p, float64(c), s)
	}
	return float32(s)
}

// maybeHalfway says whether s may be halfway between two float32 values: it ends in
// a one and 28 zeros, or is below the normal range of float32.
func maybeHalfway(s float64) bool {
	const minNormal32 = (1023 - 126) << 52 // 2^-126 as float64 bits
	w := math.Float64bits(s)
	return w&(1<<29-1) == 1<<28 || w<<1 < minNormal32<<1
}

// roundOdd is p + c, of which s is the rounded sum, rounded to float32. An inexact s
// is replaced by that of its two neighbours around p + c whose last bit is one: it is
// never halfway between float32 values, and on the same side of halfway as p + c.
func roundOdd(p, c, s float64) float32 {
	// Knuth's TwoSum: p + c == s + e exactly.
	d := s - p
	e := (p - (s - d)) + (c - d)
	w := math.Float64bits(s)
	if e == 0 || w&1 == 1 {
		return float32(s)
	}
	if (e > 0) == (s > 0) {
		w++
	} else {
		w--
	}
	return float32(math.Float64frombits(w))
}

// mulAdd32 is a*b + c as the reference rounds it: once, or twice where its build
// does without fused multiply-add.
func mulAdd32(fused bool, a, b, c float32) float32 {
	if fused {
		return FMA32(a, b, c)
	}
	return float32(a*b) + c
}
