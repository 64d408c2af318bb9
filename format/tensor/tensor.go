// Package tensor describes tensors that lie in files, or that will be written
// to one, without holding their elements.
package tensor

import "io"

// Storage is the bytes that tensors are views of: one record of a torch.save
// archive, or anything else that can be read at an offset. Elements are
// little-endian. Two tensors with the same Storage share memory in Python.
type Storage interface {
	io.ReaderAt
	// Size is the length in bytes.
	Size() int64
}

// Content is the row-major little-endian bytes of a tensor that is yet to be
// written. WriteTo writes exactly Size bytes and may be called again.
type Content interface {
	io.WriterTo
	Size() int64
}

// Tensor is a tensor of a checkpoint. A stored one has Chunks, boxes that tile
// Shape (one box for a plain tensor); one that is to be written may have
// Content instead.
type Tensor struct {
	DType        DType
	Shape        []int64 // () for a 0-dim tensor
	Chunks       []Chunk
	Content      Content
	RequiresGrad bool
	Parameter    bool // wrapped in torch.nn.Parameter
}

// Chunk is a box of a tensor: Offset and Shape in elements per dimension, and
// where its elements lie, as a strided view of Storage.
type Chunk struct {
	Offset, Shape []int64
	Storage       Storage
	Start         int64   // element offset into Storage
	Stride        []int64 // in elements, one per dimension
}

// Len is the number of elements.
func (t *Tensor) Len() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the number of bytes of all elements.
func (t *Tensor) Bytes() int64 { return t.Len() * int64(t.DType.Size()) }
