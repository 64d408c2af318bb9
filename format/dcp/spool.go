package dcp

import (
	"io"
	"math"
	"os"

	"gefenckpt/internal/fault"
)

const (
	// mostSpools is how many decompressed items are kept beside those in use.
	mostSpools = 16
	// spoolMemory is how many bytes of one are held in memory; the rest of it goes
	// to a temporary file.
	spoolMemory = 64 << 10
	// archiveOverhead is what an archive may take beside the elements of its
	// tensor: about 1,600 bytes in files from torch.
	archiveOverhead = 64 << 10
	// A bytes item, of which the metadata gives no size, may decompress to
	// bytesRatio times what it takes in the file, and bytesOverhead more.
	bytesRatio    = 256
	bytesOverhead = 1 << 20
)

// spool holds a decompressed item: in memory if it is small, else in a temporary
// file that has no name any more.
type spool struct {
	data  []byte
	file  *os.File
	named bool // the file could not be removed while it is open
	size  int64
}

// Write appends to the spool.
func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.size+int64(len(p)) <= spoolMemory {
		s.data = append(s.data, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.Write(p)
	s.size += int64(n)
	if err != nil {
		return n, spoolFault(err)
	}
	return n, nil
}

// spill moves the spool to a temporary file.
func (s *spool) spill() error {
	f, err := os.CreateTemp("", "gefenckpt-*")
	if err != nil {
		return spoolFault(err)
	}
	s.file, s.named = f, os.Remove(f.Name()) != nil
	if _, err := f.Write(s.data); err != nil {
		return spoolFault(err)
	}
	s.data = nil
	return nil
}

func spoolFault(err error) error {
	return fault.New(fault.Resource, "a compressed item needs room in the temporary directory: %w", err).
		WithHint("point TMPDIR at a disk with room")
}

// ReadAt reads from the spool.
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, off)
	}
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	n := copy(p, s.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close gives back what the spool takes.
func (s *spool) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.named {
		os.Remove(s.file.Name())
	}
	return err
}

// openSpool decompresses an item. A tensor may not become larger than the
// metadata says that it is.
func (d *Directory) openSpool(id itemID) (*spool, error) {
	item := &d.Metadata.Items[id.item]
	chunk := &item.Chunks[id.chunk]
	if f := isZstd(d.Metadata.Transforms(chunk)); f != nil {
		return nil, f
	}
	stored := d.stored(id)
	limit := bytesOverhead + bytesRatio*min(stored.length, math.MaxInt64/(2*bytesRatio))
	if item.Tensor {
		limit = volume(chunk.Shape)*int64(item.DType.Size()) + archiveOverhead
	}
	d.decompressing.Lock() // one decoder at a time: each may take 16 MiB
	defer d.decompressing.Unlock()
	s := &spool{}
	if _, err := decompress(s, io.NewSectionReader(stored, 0, stored.length), limit); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// spooled is the bytes of a compressed item, decompressed again should they have
// been given up in the meantime.
type spooled struct {
	pool *pool[itemID, *spool]
	id   itemID
	size int64
}

// Size is the length in bytes.
func (s *spooled) Size() int64 { return s.size }

// ReadAt reads decompressed bytes.
func (s *spooled) ReadAt(p []byte, off int64) (n int, err error) {
	err = s.pool.use(s.id, func(held *spool) error {
		n, err = held.ReadAt(p, off)
		if err == io.EOF {
			return nil
		}
		return err
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
