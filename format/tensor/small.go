package tensor

import (
	"encoding/binary"
	"math"

	"gefenckpt/internal/fault"
)

// smallTensor is how many bytes ReadAll reads at most.
const smallTensor = 1 << 24

// ReadAll reads a small tensor whole, at most 16 MiB: a codebook, a counter.
func (t *Tensor) ReadAll() ([]byte, error) {
	if t.Bytes() > smallTensor {
		return nil, fault.New(fault.Resource, "a tensor of %v is %d bytes, expected a small one of at most %d", t.Shape, t.Bytes(), smallTensor)
	}
	data := make([]byte, t.Bytes())
	return data, t.ReadAt(data, 0)
}

// Float32s reads a small float32 tensor whole.
func (t *Tensor) Float32s() ([]float32, error) {
	if t.DType != Float32 {
		return nil, fault.New(fault.Corrupt, "a tensor is %s, expected float32", t.DType)
	}
	data, err := t.ReadAll()
	if err != nil {
		return nil, err
	}
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
}

var le = binary.LittleEndian

// scalars decode one element of the types that counters and hyperparameters
// have.
var scalars = map[DType]func([]byte) float64{
	Float32:  func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) },
	Float64:  func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) },
	BFloat16: func(b []byte) float64 { return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16)) },
	Int64:    func(b []byte) float64 { return float64(int64(le.Uint64(b))) },
	Int32:    func(b []byte) float64 { return float64(int32(le.Uint32(b))) },
	Int16:    func(b []byte) float64 { return float64(int16(le.Uint16(b))) },
	Int8:     func(b []byte) float64 { return float64(int8(b[0])) },
	Uint8:    func(b []byte) float64 { return float64(b[0]) },
	Bool:     func(b []byte) float64 { return float64(b[0]) },
}

// Scalar reads a tensor of one element as a float64, exactly for every integer
// up to 2^53.
func (t *Tensor) Scalar() (float64, error) {
	decode, ok := scalars[t.DType]
	switch {
	case t.Len() != 1:
		return 0, fault.New(fault.Corrupt, "a tensor of %v has %d elements, expected one", t.Shape, t.Len())
	case !ok:
		return 0, fault.New(fault.Unsupported, "a single number is stored as %s, which is not read", t.DType)
	}
	data, err := t.ReadAll()
	if err != nil {
		return 0, err
	}
	return decode(data), nil
}
