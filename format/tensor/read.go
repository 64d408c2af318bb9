package tensor

import (
	"io"
	"slices"
	"sort"

	"gefenckpt/internal/fault"
)

// ReadAt reads len(dst)/itemsize elements in row-major order, beginning with
// flat element number from. The tensor must be valid, see [Tensor.Validate].
// ReadAt is safe for concurrent use.
func (t *Tensor) ReadAt(dst []byte, from int64) error {
	size := int64(t.DType.Size())
	n := int64(len(dst)) / size
	if from < 0 || n*size != int64(len(dst)) || from > t.Len()-n {
		return fault.New(fault.Internal, "elements [%d, %d) are read from a tensor of %v", from, from+n, t.Shape)
	}
	if n == 0 {
		return nil
	}
	switch len(t.Chunks) {
	case 0:
		return fault.New(fault.Internal, "a tensor of %v without stored data is read", t.Shape)
	case 1:
		if t.Contiguous() {
			c := &t.Chunks[0]
			return c.read(dst, (c.Start+from)*size)
		}
	default:
		var err error
		if dst, from, err = t.readRows(dst, from); err != nil {
			return err
		}
	}
	return t.gather(dst, from)
}

// readRows reads chunk after chunk as long as each is contiguous, has whole rows
// (indices of the first dimension) and begins where the one before it ended: the
// chunks of a Shard(0) tensor. It returns what is left to read.
func (t *Tensor) readRows(dst []byte, from int64) ([]byte, int64, error) {
	if len(t.Shape) == 0 {
		return dst, from, nil
	}
	size, width := int64(t.DType.Size()), int64(1)
	for _, d := range t.Shape[1:] {
		width *= d
	}
	// The search is right for sorted chunks; whether it was is seen below.
	i := sort.Search(len(t.Chunks), func(i int) bool {
		c := &t.Chunks[i]
		return (c.Offset[0]+c.Shape[0])*width > from
	})
	for ; i < len(t.Chunks) && len(dst) > 0; i++ {
		c := &t.Chunks[i]
		if c.Shape[0] == 0 {
			continue
		}
		start, end := c.Offset[0]*width, (c.Offset[0]+c.Shape[0])*width
		if from < start || from >= end || !slices.Equal(c.Shape[1:], t.Shape[1:]) || !c.contiguous() {
			break
		}
		n := min(end-from, int64(len(dst))/size)
		if err := c.read(dst[:n*size], (c.Start+from-start)*size); err != nil {
			return nil, 0, err
		}
		dst, from = dst[n*size:], from+n
	}
	return dst, from, nil
}

// Contiguous says whether the elements follow each other row-major in one storage.
func (t *Tensor) Contiguous() bool { return len(t.Chunks) == 1 && t.Chunks[0].contiguous() }

// contiguous says whether the chunk's elements follow each other row-major.
func (c *Chunk) contiguous() bool {
	want := int64(1)
	for i := len(c.Shape) - 1; i >= 0; i-- {
		if c.Shape[i] != 1 && c.Stride[i] != want {
			return false
		}
		want *= c.Shape[i]
	}
	return true
}

// read fills dst from byte offset off of the chunk's storage.
func (c *Chunk) read(dst []byte, off int64) error {
	n, err := c.Storage.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = fault.New(fault.Corrupt, "storage of %d bytes ends within [%d, %d)", c.Storage.Size(), off, off+int64(len(dst)))
	}
	return err
}
