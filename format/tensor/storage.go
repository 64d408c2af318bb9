package tensor

import (
	"bytes"
	"io"
)

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

// AsStorage is the tensor's bytes, row-major, as something to read at an offset:
// in place where they lie together, gathered otherwise. The tensor must have
// elements of one byte.
func (t *Tensor) AsStorage() Storage {
	if t.Contiguous() {
		c := t.Chunks[0]
		return &Section{R: c.Storage, Off: c.Start, N: t.Bytes()}
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
