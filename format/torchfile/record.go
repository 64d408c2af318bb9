package torchfile

import (
	"bytes"
	"compress/flate"
	"hash/crc32"
	"io"
	"sync"

	"gefenckpt/format/tensor"
)

// Record is the storage of one member. Reads that follow each other from its
// start on are checksummed on the way, and a wrong CRC-32 is an error of the read
// that reaches the end; Verify checks what was read in another order.
type Record struct {
	name string
	src  tensor.Storage // the member's bytes
	crc  uint32

	mu      sync.Mutex
	sum     uint32
	next    int64 // bytes that are in sum
	touched bool
}

// Size is in bytes.
func (r *Record) Size() int64 { return r.src.Size() }

// ReadAt implements io.ReaderAt.
func (r *Record) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.src.ReadAt(p, off)
	if e := r.account(p[:n], off); e != nil {
		return 0, e // no byte of it is to be used
	}
	return n, err
}

// account adds bytes that were read at off to the checksum, if they follow what
// is in it.
func (r *Record) account(p []byte, off int64) error {
	if r.crc == 0 { // torch can leave checksums out
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched = true
	if off > r.next || off+int64(len(p)) <= r.next {
		return nil
	}
	r.sum = crc32.Update(r.sum, crc32.IEEETable, p[r.next-off:])
	r.next = off + int64(len(p))
	if r.next == r.Size() && r.sum != r.crc {
		return r.mismatch()
	}
	return nil
}

func (r *Record) mismatch() error {
	return corrupt(-1, "CRC-32 is %08x, expected %08x: the bytes have changed since they were written", r.sum, r.crc).In(r.name).
		WithHint("copy the file again from where it was written")
}

// Verify reads what is missing for the checksum of a record that was read from,
// and compares it.
func (r *Record) Verify() error {
	r.mu.Lock()
	next, pending := r.next, r.touched && r.next < r.Size()
	r.mu.Unlock()
	if !pending {
		return nil
	}
	buffer := make([]byte, min(r.Size()-next, 1<<20))
	for next < r.Size() {
		n := min(int64(len(buffer)), r.Size()-next)
		if err := readInto(r, buffer[:n], next); err != nil {
			return err
		}
		next += n
	}
	return nil
}

// inflated is a deflated member in memory. torch never writes one; they come
// from tools that repack an archive, so a limit on the size does not hurt.
func inflated(s tensor.Storage, r *record, limit int64) (tensor.Storage, error) {
	if r.size > limit {
		return nil, corrupt(r.header, "member %q is compressed and would be %d bytes; at most %d are unpacked", r.name, r.size, limit).
			WithHint("save the checkpoint again with torch.save, which stores without compression")
	}
	z := flate.NewReader(io.NewSectionReader(s, r.data, r.packed))
	// Grown as data comes: the size is a claim until the bytes are there.
	var out bytes.Buffer
	if _, err := io.Copy(&out, io.LimitReader(z, r.size+1)); err != nil {
		return nil, corrupt(r.data, "member %q cannot be unpacked: %w", r.name, err)
	}
	if int64(out.Len()) != r.size {
		return nil, corrupt(r.data, "member %q unpacks to %d bytes or more, expected %d", r.name, out.Len(), r.size)
	}
	return tensor.Memory(out.Bytes()), nil
}
