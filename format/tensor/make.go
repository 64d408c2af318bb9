package tensor

import (
	"encoding/binary"
	"math"
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
