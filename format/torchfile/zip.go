package torchfile

import (
	"encoding/binary"
	"errors"
	"io"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// Signatures and fixed lengths of zip's structures.
const (
	localSig      = 0x04034b50
	centralSig    = 0x02014b50
	endSig        = 0x06054b50
	end64Sig      = 0x06064b50
	locatorSig    = 0x07064b50
	descriptorSig = 0x08074b50

	localLen   = 30
	centralLen = 46
	endLen     = 22
	end64Len   = 56
	locatorLen = 20

	zip64Extra = 0x0001
	max32      = 0xffffffff
	max16      = 0xffff

	methodStored  = 0
	methodDeflate = 8

	flagEncrypted = 1 << 0
)

var le = binary.LittleEndian

func corrupt(off int64, format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, format, args...).At(off).WithHint("copy the file again from where it was written")
}

// readFull reads n bytes at off, which were checked to be there.
func readFull(s io.ReaderAt, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	return b, readInto(s, b, off)
}

func readInto(s io.ReaderAt, b []byte, off int64) error {
	n, err := s.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	var known *fault.Error
	switch {
	case err == nil || err == io.EOF:
		return corrupt(off, "the file ends after %d of %d bytes", n, len(b))
	case errors.As(err, &known): // a checksum, or an archive around this one
		return err
	}
	return fault.New(fault.Resource, "reading: %w", err).At(off)
}

// edgeLen is how much of either end of an archive is read in advance.
const edgeLen = 4 << 10

// edges is an archive while it is opened. Its first and its last bytes are read
// once: most of what opening needs stands there, and of a small archive all.
type edges struct {
	tensor.Storage
	head, tail []byte
}

func readEdges(s tensor.Storage) (*edges, error) {
	e := &edges{Storage: s}
	n := s.Size()
	if n > 2*edgeLen {
		n = edgeLen
		e.tail = make([]byte, edgeLen)
		if err := readInto(s, e.tail, s.Size()-edgeLen); err != nil {
			return nil, err
		}
	}
	e.head = make([]byte, n)
	return e, readInto(s, e.head, 0)
}

// ReadAt implements io.ReaderAt.
func (e *edges) ReadAt(p []byte, off int64) (int, error) {
	if from := off - (e.Size() - int64(len(e.tail))); from >= 0 && from+int64(len(p)) <= int64(len(e.tail)) {
		return copy(p, e.tail[from:]), nil
	}
	if off >= 0 && off+int64(len(p)) <= int64(len(e.head)) {
		return copy(p, e.head[off:]), nil
	}
	return e.Storage.ReadAt(p, off)
}
