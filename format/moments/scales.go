package moments

import (
	"encoding/binary"
	"math"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// scales reads the one value per block of a shard (magnitude or vmean) along
// with the shard's elements.
type scales struct {
	plane  *tensor.Tensor // float32 (B, 1)
	period int64
	raw    []byte
	values []float32
}

func newScales(plane *tensor.Tensor, period int64) *scales {
	return &scales{plane: plane, period: period}
}

// read returns the values of blocks [first, last].
func (s *scales) read(first, last int64) ([]float32, error) {
	n := int(last - first + 1)
	if cap(s.raw) < 4*n {
		s.raw, s.values = make([]byte, 4*n), make([]float32, n)
	}
	raw, values := s.raw[:4*n], s.values[:n]
	if err := s.plane.ReadAt(raw, first); err != nil {
		return nil, err
	}
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return values, CheckScales(values, first)
}

// CheckScales is a Corrupt fault if any of a run of magnitudes or second moments,
// the first of them number from, is one that no optimizer makes: negative,
// infinite, or not a number.
func CheckScales(values []float32, from int64) error {
	for i, v := range values {
		if !(v >= 0 && v <= math.MaxFloat32) {
			return fault.New(fault.Corrupt, "element %d is %v, expected a finite number, not negative", from+int64(i), v).
				WithHint("the run had diverged, or the file is damaged: use another checkpoint")
		}
	}
	return nil
}

// runs calls each for every run of elements of one block within [from, from+n):
// at is the run's position relative to from.
func (s *scales) runs(from int64, n int, each func(at, n int, value float32)) error {
	if n == 0 {
		return nil
	}
	first := from / s.period
	values, err := s.read(first, (from+int64(n)-1)/s.period)
	if err != nil {
		return err
	}
	at := 0
	for i, v := range values {
		end := int(min((first+int64(i)+1)*s.period-from, int64(n)))
		each(at, end-at, v)
		at = end
	}
	return nil
}
