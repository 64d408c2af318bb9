package tensor

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"

	"gefenckpt/internal/fault"
)

// RowMajor are the strides, in elements, of a contiguous tensor.
func RowMajor(shape []int64) []int64 {
	stride := make([]int64, len(shape))
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		stride[i] = step
		step *= max(shape[i], 1)
	}
	return stride
}

// Whole is the chunk of a contiguous tensor that lies at the start of s.
func Whole(shape []int64, s Storage) Chunk {
	return Chunk{Offset: make([]int64, len(shape)), Shape: shape, Storage: s, Stride: RowMajor(shape)}
}

// Memory is a Storage in memory.
func Memory(data []byte) Storage { return bytes.NewReader(data) }

// Section is the part [Off, Off+N) of something larger.
type Section struct {
	R      io.ReaderAt
	Off, N int64
}

// ReadAt reads within the section; past its end is io.EOF.
func (s *Section) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.N {
		return 0, io.EOF
	}
	if left := s.N - off; int64(len(p)) > left {
		n, err := s.R.ReadAt(p[:left], s.Off+off)
		if err == nil {
			err = io.EOF
		}
		return n, err
	}
	return s.R.ReadAt(p, s.Off+off)
}

// Size is in bytes.
func (s *Section) Size() int64 { return s.N }

// FromBytes is a contiguous tensor over elements in memory.
func FromBytes(d DType, shape []int64, data []byte) *Tensor {
	return &Tensor{DType: d, Shape: shape, Chunks: []Chunk{Whole(shape, Memory(data))}}
}

// FromFloat32s is a float32 tensor in memory.
func FromFloat32s(shape []int64, values []float32) *Tensor {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return FromBytes(Float32, shape, data)
}

// FromInt64 is a 0-dim int64 tensor.
func FromInt64(n int64) *Tensor {
	return FromBytes(Int64, []int64{}, binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

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
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, err
}

// Scalar reads a tensor of one element as a float64, exactly for every integer
// up to 2^53.
func (t *Tensor) Scalar() (float64, error) {
	if t.Len() != 1 {
		return 0, fault.New(fault.Corrupt, "a tensor of %v has %d elements, expected one", t.Shape, t.Len())
	}
	data, err := t.ReadAll()
	if err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	switch t.DType {
	case Float32:
		return float64(math.Float32frombits(le.Uint32(data))), nil
	case Float64:
		return math.Float64frombits(le.Uint64(data)), nil
	case BFloat16:
		return float64(math.Float32frombits(uint32(le.Uint16(data)) << 16)), nil
	case Int64:
		return float64(int64(le.Uint64(data))), nil
	case Int32:
		return float64(int32(le.Uint32(data))), nil
	case Int16:
		return float64(int16(le.Uint16(data))), nil
	case Int8:
		return float64(int8(data[0])), nil
	case Uint8, Bool:
		return float64(data[0]), nil
	}
	return 0, fault.New(fault.Unsupported, "a scalar is %s, expected a number", t.DType)
}

// copyBytes is how much of a stored tensor is copied at a time.
const copyBytes = 1 << 20

// Data is the row-major content of a tensor: its Content, or what it stores.
func (t *Tensor) Data() Content {
	if t.Content != nil {
		return t.Content
	}
	return stored{t}
}

// stored streams a stored tensor.
type stored struct{ t *Tensor }

func (s stored) Size() int64 { return s.t.Bytes() }

func (s stored) WriteTo(w io.Writer) (int64, error) {
	size := int64(s.t.DType.Size())
	step := copyBytes / size
	n := s.t.Len()
	buffer := make([]byte, min(n, step)*size)
	var written int64
	for from := int64(0); from < n; from += step {
		b := buffer[:min(n-from, step)*size]
		if err := s.t.ReadAt(b, from); err != nil {
			return written, err
		}
		k, err := w.Write(b)
		written += int64(k)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// AsStorage is the tensor's bytes, row-major, as something to read at an offset:
// in place where they lie together, gathered otherwise. The tensor must have
// elements of one byte.
func (t *Tensor) AsStorage() Storage {
	if len(t.Chunks) == 1 && t.Chunks[0].contiguous() {
		c := t.Chunks[0]
		return &Section{R: c.Storage, Off: c.Start * int64(t.DType.Size()), N: t.Bytes()}
	}
	return &gathered{t}
}

// gathered reads the bytes of a tensor that lie apart.
type gathered struct{ t *Tensor }

func (g *gathered) Size() int64 { return g.t.Bytes() }

func (g *gathered) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= g.Size() {
		return 0, io.EOF
	}
	n := min(int64(len(p)), g.Size()-off)
	if err := g.t.ReadAt(p[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}
