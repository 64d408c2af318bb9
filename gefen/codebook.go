package gefen

import "fmt"

// Codebook has the 256 codewords, non-decreasing, from -1 to +1. Codewords may
// repeat.
type Codebook [256]float32

// Validate says what is wrong with a codebook, or nil.
func (c *Codebook) Validate() error {
	for i, x := range c {
		if x != x || i > 0 && x < c[i-1] {
			return fmt.Errorf("codeword %d is %v after %v, expected them in order", i, x, c[max(i-1, 0)])
		}
	}
	if c[0] != -1 || c[255] != 1 {
		return fmt.Errorf("the codebook reaches from %v to %v, expected -1 to 1", c[0], c[255])
	}
	return nil
}

// Dequantize sets dst[i] = c[index[i]] * magnitude[(phase+i)/period]: a range of a
// shard that begins phase elements into the block of magnitude[0].
func (c *Codebook) Dequantize(dst []float32, index []uint8, magnitude []float32, period, phase int) {
	for at, b := 0, 0; at < len(dst); b++ {
		end := min((b+1)*period-phase, len(dst))
		scale := magnitude[b]
		out, in := dst[at:end], index[at:end]
		for i, code := range in {
			out[i] = c[code] * scale
		}
		at = end
	}
}
