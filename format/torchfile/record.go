package torchfile

import (
	"hash/crc32"
	"sync"
	"sync/atomic"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// record is the storage of one member. It is found in the file, and unpacked if
// need be, when it is first read.
//
// Whatever is read is checksummed on the way. The read that makes a record
// complete fails if the CRC-32 is wrong, and so does every later one; verify
// completes what was read in part.
type record struct {
	*entry
	archive tensor.Storage
	budget  *budget

	once sync.Once
	src  tensor.Storage // the member's bytes
	err  error          // of finding them

	sum     checksum
	touched atomic.Bool
	state   atomic.Int32
}

// The states of a record's checksum.
const (
	unchecked = iota
	intact
	damaged
)

// Size is in bytes.
func (r *record) Size() int64 { return r.size }

// ReadAt implements io.ReaderAt.
func (r *record) ReadAt(p []byte, off int64) (int, error) {
	src, err := r.open()
	if err != nil {
		return 0, err
	}
	n, err := src.ReadAt(p, off)
	if r.crc == 0 || n == 0 { // torch can leave checksums out
		return n, err
	}
	r.touched.Store(true)
	if r.state.Load() == unchecked {
		r.sum.add(p[:n], off)
		r.compare()
	}
	if r.state.Load() == damaged {
		return 0, r.mismatch() // no byte of it is to be used
	}
	return n, err
}

func (r *record) open() (tensor.Storage, error) {
	r.once.Do(func() {
		r.src, r.err = r.bytes(r.archive, r.budget)
		r.err = fault.Within(r.err, "", r.name)
	})
	return r.src, r.err
}

// compare compares the checksum, once all bytes are in it.
func (r *record) compare() {
	crc, ok := r.sum.whole(r.size)
	switch {
	case !ok:
	case crc == r.crc:
		r.state.Store(intact)
	default:
		r.state.Store(damaged)
	}
}

func (r *record) mismatch() error {
	crc, _ := r.sum.whole(r.size)
	return wrongSum(r.entry, crc)
}

func wrongSum(e *entry, crc uint32) error {
	return corrupt(fault.NoOffset, "CRC-32 is %08x, expected %08x: the bytes have changed since they were written", crc, e.crc).In(e.name).
		WithHint("copy the file again from where it was written")
}

// verify reads what is missing for the checksum of a record that was read from,
// and compares it.
func (r *record) verify() error {
	if !r.touched.Load() {
		return nil
	}
	var buffer []byte
	for r.state.Load() == unchecked {
		lo, hi, _ := r.sum.gap(0, r.size)
		if buffer == nil {
			buffer = make([]byte, min(r.size, 1<<20))
		}
		b := buffer[:min(hi-lo, int64(len(buffer)))]
		if err := readInto(r.src, b, lo); err != nil {
			return fault.Within(err, "", r.name)
		}
		r.sum.insert(part{lo, lo + int64(len(b)), crc32.ChecksumIEEE(b)})
		r.compare()
	}
	if r.state.Load() == damaged {
		return r.mismatch()
	}
	return nil
}
