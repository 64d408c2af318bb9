package gefen

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// exactFMA is a*b + c with one rounding, by exact arithmetic.
func exactFMA(a, b, c float32) float32 {
	wide := func(x float32) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(float64(x)) }
	sum := wide(a)
	sum.Mul(sum, wide(b)).Add(sum, wide(c))
	r, _ := sum.Float32()
	return r
}

// anyFloat32 draws finite float32 values from all of their patterns.
func anyFloat32() *rapid.Generator[float32] {
	return rapid.Map(rapid.Uint32(), math.Float32frombits).Filter(func(x float32) bool {
		return x-x == 0
	})
}

func checkFMA(t interface {
	Helper()
	Errorf(string, ...any)
}, a, b, c float32) {
	t.Helper()
	if got, want := FMA32(a, b, c), exactFMA(a, b, c); got != want {
		t.Errorf("FMA32(%x, %x, %x) = %x, expected %x", a, b, c, got, want)
	}
}

func TestFMA32IsRoundedOnce(t *testing.T) {
	t.Run("any values", rapid.MakeCheck(func(t *rapid.T) {
		g := anyFloat32()
		checkFMA(t, g.Draw(t, "a"), g.Draw(t, "b"), g.Draw(t, "c"))
	}))
	// The sum of a product and a much larger value halfway between two floats,
	// give or take less than float64 can hold.
	t.Run("near halfway", rapid.MakeCheck(func(t *rapid.T) {
		k := rapid.IntRange(-300, 300).Draw(t, "k")
		a := float32(math.Ldexp(float64(1<<23+k), -23))
		b := float32(math.Ldexp(float64(1<<24-2*k), -24))
		c := float32(1<<23+rapid.IntRange(0, 1<<23-1).Draw(t, "c")) * 2
		if rapid.Bool().Draw(t, "negative") {
			b, c = -b, -c
		}
		shift := math.Ldexp(1, rapid.IntRange(-170, 80).Draw(t, "shift"))
		checkFMA(t, a, float32(float64(b)*shift), float32(float64(c)*shift))
		checkFMA(t, a, float32(float64(b)*shift), float32(float64(-c)*shift))
	}))
	// Products and sums below the normal range.
	t.Run("subnormal", rapid.MakeCheck(func(t *rapid.T) {
		tiny := rapid.Map(rapid.Uint32Range(0, 1<<24), math.Float32frombits)
		root := rapid.Map(rapid.Float32Range(-1, 1), func(x float32) float32 { return x * 0x1p-63 })
		checkFMA(t, root.Draw(t, "a"), root.Draw(t, "b"), tiny.Draw(t, "c"))
	}))
}

// TestFMA32AgainstTwoRoundings has sums that go wrong if float64 is rounded again.
func TestFMA32AgainstTwoRoundings(t *testing.T) {
	for _, v := range []struct {
		name    string
		a, b, c float32
		want    float32
	}{
		{"just below halfway", 1 + 0x1p-23, (1 - 0x1p-23) * 0x1p-24, 1 + 0x1p-23, 1 + 0x1p-23},
		{"just above halfway", -1 - 0x1p-23, (1 - 0x1p-23) * 0x1p-24, 1 + 0x1p-22, 1 + 0x1p-22},
		{"exactly halfway", 0x1p-12, 0x1p-12, 1, 1},
		{"exactly halfway, odd", 0x1p-12, 0x1p-12, 1 + 0x1p-23, 1 + 0x1p-22},
		{"zero", 0, 5, 0, 0},
		{"cancelled", 3, -1, 3, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			checkFMA(t, v.a, v.b, v.c)
			if got := FMA32(v.a, v.b, v.c); got != v.want {
				t.Errorf("%x, expected %x", got, v.want)
			}
		})
	}
	// A test that plain float64 passes would prove nothing.
	a, b, c := float32(1+0x1p-23), float32((1-0x1p-23)*0x1p-24), float32(1+0x1p-23)
	if twice := float32(float64(a)*float64(b) + float64(c)); twice == FMA32(a, b, c) {
		t.Errorf("the example does not tell one rounding from two")
	}
}

func TestFMA32OfInfinitiesAndNaN(t *testing.T) {
	inf := float32(math.Inf(1))
	if got := FMA32(inf, 1, 1); got != inf {
		t.Errorf("inf*1 + 1 = %v", got)
	}
	if got := FMA32(math.MaxFloat32, 2, 0); got != inf {
		t.Errorf("overflow gives %v", got)
	}
	if got := FMA32(inf, 0, 1); got == got {
		t.Errorf("inf*0 + 1 = %v", got)
	}
}

func TestRoundBFloat16(t *testing.T) {
	for _, v := range []struct{ x, want float32 }{
		{1, 1},
		{1 + 0x1p-8, 1},            // tie, to even
		{1 + 3*0x1p-8, 1 + 0x1p-6}, // tie, to even
		{1 + 0x1p-8 + 0x1p-23, 1 + 0x1p-7},
		{-1 - 0x1p-8 - 0x1p-23, -1 - 0x1p-7},
		{0x1p-149, 0},
		{math.MaxFloat32, float32(math.Inf(1))},
	} {
		if got := RoundBFloat16(v.x); got != v.want {
			t.Errorf("%x rounds to %x, expected %x", v.x, got, v.want)
		}
	}
	if nan := RoundBFloat16(math.Float32frombits(0x7fffffff)); nan == nan {
		t.Errorf("NaN rounds to %v", nan)
	}
}
