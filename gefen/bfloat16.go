package gefen

import "math"

// DType is the type of a parameter and of its gradient. Values are held as float32
// in either case: those of BFloat16 are widened, which is exact.
type DType uint8

// The types.
const (
	Float32 DType = iota
	BFloat16
)

// String is the type as PyTorch prints it.
func (d DType) String() string {
	if d == BFloat16 {
		return "torch.bfloat16"
	}
	return "torch.float32"
}

// RoundBFloat16 rounds to the nearest bfloat16, ties to even.
func RoundBFloat16(x float32) float32 {
	w := math.Float32bits(x)
	if w<<1 > 0xff<<24 { // NaN: keep it one
		return x
	}
	return math.Float32frombits((w + 0x7fff + w>>16&1) &^ 0xffff)
}

// round rounds values to the type in place.
func (d DType) round(x []float32) {
	if d == BFloat16 {
		for i, v := range x {
			x[i] = RoundBFloat16(v)
		}
	}
}
