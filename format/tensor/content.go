package tensor

import (
	"io"
	"sync"
)

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

// buffers are the copyBytes that the tensors which need them all pass through.
var buffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

func (s stored) WriteTo(w io.Writer) (int64, error) {
	size := int64(s.t.DType.Size())
	step := copyBytes / size
	n := s.t.Len()
	var buffer []byte
	if n < step {
		buffer = make([]byte, n*size)
	} else {
		pooled := buffers.Get().(*[copyBytes]byte)
		defer buffers.Put(pooled)
		buffer = pooled[:]
	}
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
