package tensor

import (
	"io"
	"slices"

	"gefenckpt/internal/fault"
)

// ReadAt reads len(dst)/itemsize elements in row-major order, beginning with
// flat element number from. It is safe for concurrent use.
func (t *Tensor) ReadAt(dst []byte, from int64) error {
	size := int64(t.DType.Size())
	n := int64(len(dst)) / size
	if from < 0 || n*size != int64(len(dst)) || from > t.Len()-n {
		return fault.New(fault.Internal, "elements [%d, %d) are read from a tensor of %v", from, from+n, t.Shape)
	}
	if n == 0 {
		return nil
	}
	if len(t.Chunks) == 0 {
		return fault.New(fault.Internal, "a tensor of %v without stored data is read", t.Shape)
	}
	if len(t.Chunks) > 1 {
		if rows, ok := t.rowChunks(); ok {
			return t.readRows(rows, dst, from)
		}
	}
	for i := range t.Chunks {
		if err := t.readBox(&t.Chunks[i], dst, from, from+n); err != nil {
			return err
		}
	}
	return nil
}

// rowWidth is the number of elements of one index of the first dimension.
func (t *Tensor) rowWidth() int64 {
	w := int64(1)
	for _, d := range t.Shape[1:] {
		w *= d
	}
	return w
}

// rowChunks returns the chunks sorted by row, if each is contiguous and whole in
// every dimension but the first: the chunks of a Shard(0) tensor.
func (t *Tensor) rowChunks() ([]*Chunk, bool) {
	if len(t.Shape) == 0 {
		return nil, false
	}
	rows := make([]*Chunk, 0, len(t.Chunks))
	for i := range t.Chunks {
		c := &t.Chunks[i]
		if !slices.Equal(c.Shape[1:], t.Shape[1:]) || !c.contiguous() {
			return nil, false
		}
		if c.Shape[0] > 0 {
			rows = append(rows, c)
		}
	}
	slices.SortFunc(rows, func(a, b *Chunk) int {
		if a.Offset[0] < b.Offset[0] {
			return -1
		}
		return 1
	})
	return rows, true
}

func (t *Tensor) readRows(rows []*Chunk, dst []byte, from int64) error {
	size, width := int64(t.DType.Size()), t.rowWidth()
	for _, c := range rows {
		start, end := c.Offset[0]*width, (c.Offset[0]+c.Shape[0])*width
		if len(dst) == 0 || from >= end {
			continue
		}
		n := min(end-from, int64(len(dst))/size)
		if err := c.read(dst[:n*size], (c.Start+from-start)*size); err != nil {
			return err
		}
		dst, from = dst[n*size:], from+n
	}
	return nil
}

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

// readBox copies the elements that chunk c and the flat range [from, to) have in
// common into dst, whose first element is number from.
func (t *Tensor) readBox(c *Chunk, dst []byte, from, to int64) error {
	size := int64(t.DType.Size())
	if len(t.Shape) == 0 {
		return c.read(dst, c.Start*size)
	}
	if len(t.Chunks) == 1 && c.contiguous() {
		return c.read(dst, (c.Start+from)*size)
	}
	last := len(t.Shape) - 1
	if slices.Contains(c.Shape, 0) {
		return nil
	}
	// Odometer over all dimensions but the last: one run of the last dimension
	// at a time.
	at := make([]int64, last)
	var scratch []byte
	for {
		flat, where := int64(0), c.Start
		for i := range last {
			flat = flat*t.Shape[i] + c.Offset[i] + at[i]
			where += at[i] * c.Stride[i]
		}
		flat = flat*t.Shape[last] + c.Offset[last]
		lo, hi := max(flat, from), min(flat+c.Shape[last], to)
		if lo < hi {
			out := dst[(lo-from)*size : (hi-from)*size]
			where += (lo - flat) * c.Stride[last]
			var err error
			if c.Stride[last] == 1 || hi-lo == 1 {
				err = c.read(out, where*size)
			} else {
				scratch, err = c.gather(out, where, c.Stride[last], size, scratch)
			}
			if err != nil {
				return err
			}
		}
		i := last - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < c.Shape[i] {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return nil
		}
	}
}

// gatherSpan is how many bytes are read at once to pick strided elements from.
const gatherSpan = 1 << 18

// gather reads len(out)/size elements that are stride elements apart, through
// scratch, which it returns for the next call.
func (c *Chunk) gather(out []byte, where, stride, size int64, scratch []byte) ([]byte, error) {
	for len(out) > 0 {
		n := int64(len(out)) / size
		if stride > 0 {
			n = min(n, max(1, gatherSpan/(stride*size)))
		}
		span := ((n-1)*stride + 1) * size
		scratch = slices.Grow(scratch[:0], int(span))[:span]
		if err := c.read(scratch, where*size); err != nil {
			return scratch, err
		}
		for i := range n {
			copy(out[i*size:(i+1)*size], scratch[i*stride*size:])
		}
		out, where = out[n*size:], where+n*stride
	}
	return scratch, nil
}
