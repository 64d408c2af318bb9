package torchfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

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

	methodStored  = 0
	methodDeflate = 8
)

// tailSearch is how far from the end the end record is looked for: its comment
// may be 64 KiB long, and torch.load accepts padding there.
const tailSearch = 1<<16 + endLen

// record is one member of the archive.
type record struct {
	name         string
	method       uint16
	crc          uint32
	packed, size int64 // bytes in the file, and unpacked
	header       int64 // offset of the local header
	data         int64 // offset of the data
}

// directory is the central directory.
type directory struct {
	records []record
	byName  map[string]int
}

// readDirectory reads the central directory of the archive that fills s. Sizes
// and checksums come from there alone: torch writes zeros in local headers.
func readDirectory(s tensor.Storage) (*directory, error) {
	dirOff, dirLen, count, err := findDirectory(s)
	if err != nil {
		return nil, err
	}
	if dirOff < 0 || dirLen < 0 || dirOff > s.Size() || dirLen > s.Size()-dirOff {
		return nil, corrupt(dirOff, "the zip directory of %d bytes reaches beyond the archive's %d", dirLen, s.Size())
	}
	if count > uint64(dirLen)/centralLen {
		return nil, corrupt(dirOff, "the zip directory names %d members, its %d bytes hold at most %d", count, dirLen, dirLen/centralLen)
	}
	raw, err := readFull(s, dirOff, dirLen)
	if err != nil {
		return nil, err
	}
	d := &directory{records: make([]record, 0, count), byName: make(map[string]int, count)}
	for pos := 0; len(d.records) < int(count); {
		r, n, err := parseCentral(raw[pos:], dirOff+int64(pos))
		if err != nil {
			return nil, err
		}
		if _, dup := d.byName[r.name]; dup {
			return nil, corrupt(dirOff+int64(pos), "two members are named %q", r.name)
		}
		d.byName[r.name] = len(d.records)
		d.records = append(d.records, r)
		pos += n
	}
	return d, d.locate(s, dirOff)
}

// findDirectory reads the end records: where the directory is and how many
// members it names.
func findDirectory(s tensor.Storage) (off, length int64, count uint64, err error) {
	n := min(s.Size(), tailSearch)
	tail, err := readFull(s, s.Size()-n, n)
	if err != nil {
		return 0, 0, 0, err
	}
	at := findEnd(tail)
	if at < 0 {
		return 0, 0, 0, corrupt(s.Size(), "no zip end record in the last %d of %d bytes: the archive is cut short, or is none", n, s.Size()).
			WithHint("copy the file again from where it was written")
	}
	end := tail[at:]
	le := binary.LittleEndian
	count, length, off = uint64(le.Uint16(end[10:])), int64(le.Uint32(end[12:])), int64(le.Uint32(end[16:]))
	endOff := s.Size() - n + int64(at)
	if endOff < locatorLen {
		return off, length, count, nil
	}
	locator, err := readFull(s, endOff-locatorLen, locatorLen)
	if err != nil || le.Uint32(locator) != locatorSig {
		return off, length, count, err
	}
	off64 := int64(le.Uint64(locator[8:]))
	if off64 < 0 || off64 > endOff-locatorLen-end64Len {
		return 0, 0, 0, corrupt(endOff-locatorLen, "the zip64 end record is said to be at %d of %d bytes", off64, s.Size())
	}
	end64, err := readFull(s, off64, end64Len)
	if err != nil {
		return 0, 0, 0, err
	}
	if le.Uint32(end64) != end64Sig {
		return 0, 0, 0, corrupt(off64, "no zip64 end record where its locator points")
	}
	return int64(le.Uint64(end64[48:])), int64(le.Uint64(end64[40:])), le.Uint64(end64[32:]), nil
}

// findEnd is the position of the end record in the tail of an archive, or -1:
// the last one that ends exactly at the end, else the last one at all.
func findEnd(tail []byte) int {
	sig := []byte("PK\x05\x06")
	best := -1
	for end := len(tail); ; {
		at := bytes.LastIndex(tail[:end], sig)
		if at < 0 {
			return best
		}
		if at+endLen <= len(tail) {
			comment := int(binary.LittleEndian.Uint16(tail[at+20:]))
			if at+endLen+comment == len(tail) {
				return at
			}
			if best < 0 {
				best = at
			}
		}
		end = at
	}
}

// parseCentral reads one entry of the central directory and returns its length.
func parseCentral(b []byte, off int64) (record, int, error) {
	le := binary.LittleEndian
	if len(b) < centralLen || le.Uint32(b) != centralSig {
		return record{}, 0, corrupt(off, "no zip directory entry where one is expected")
	}
	nameLen, extraLen, commentLen := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	n := centralLen + nameLen + extraLen + commentLen
	if n > len(b) {
		return record{}, 0, corrupt(off, "a zip directory entry of %d bytes where %d are left", n, len(b))
	}
	r := record{
		name: string(b[centralLen : centralLen+nameLen]), method: le.Uint16(b[10:]), crc: le.Uint32(b[16:]),
		packed: int64(le.Uint32(b[20:])), size: int64(le.Uint32(b[24:])), header: int64(le.Uint32(b[42:])),
	}
	if err := r.widen(b[centralLen+nameLen:][:extraLen], off); err != nil {
		return r, 0, err
	}
	switch {
	case r.size < 0 || r.packed < 0 || r.header < 0:
		return r, 0, corrupt(off, "member %q has a size or offset past 2^63", r.name)
	case le.Uint16(b[8:])&1 != 0:
		return r, 0, corrupt(off, "member %q is encrypted", r.name)
	case r.method != methodStored && r.method != methodDeflate:
		return r, 0, corrupt(off, "member %q is compressed by method %d, expected 0 (stored) or 8 (deflate)", r.name, r.method)
	case r.method == methodStored && r.packed != r.size:
		return r, 0, corrupt(off, "member %q is stored in %d bytes and said to hold %d", r.name, r.packed, r.size)
	case path.Clean(r.name) != r.name || strings.HasPrefix(r.name, "/") || strings.HasPrefix(r.name, ".."):
		return r, 0, corrupt(off, "member name %q is no plain path", r.name)
	}
	return r, n, nil
}

// widen takes the 64-bit values of the fields that are all ones.
func (r *record) widen(extra []byte, off int64) error {
	le := binary.LittleEndian
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if n > len(extra)-4 {
			return corrupt(off, "an extra field of member %q is cut short", r.name)
		}
		if id == zip64Extra {
			field := extra[4 : 4+n]
			for _, v := range []*int64{&r.size, &r.packed, &r.header} {
				if *v != max32 {
					continue
				}
				if len(field) < 8 {
					return corrupt(off, "the zip64 field of member %q is cut short", r.name)
				}
				*v, field = int64(le.Uint64(field)), field[8:]
			}
		}
		extra = extra[4+n:]
	}
	return nil
}

// locate finds each record's data behind its local header, within the archive
// and apart from every other.
func (d *directory) locate(s tensor.Storage, dirOff int64) error {
	order := make([]int, len(d.records))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if d.records[a].header < d.records[b].header {
			return -1
		}
		return 1
	})
	var header [localLen]byte
	end := int64(0)
	for _, i := range order {
		r := &d.records[i]
		if r.header < end || r.header > dirOff-localLen {
			return corrupt(r.header, "member %q overlaps another or the directory", r.name)
		}
		if err := readInto(s, header[:], r.header); err != nil {
			return err
		}
		le := binary.LittleEndian
		if le.Uint32(header[:]) != localSig {
			return corrupt(r.header, "no local header where member %q is said to be", r.name)
		}
		nameLen := int64(le.Uint16(header[26:]))
		r.data = r.header + localLen + nameLen + int64(le.Uint16(header[28:]))
		if r.data > dirOff || r.packed > dirOff-r.data {
			return corrupt(r.header, "member %q of %d bytes reaches beyond its place", r.name, r.packed)
		}
		name, err := readFull(s, r.header+localLen, min(nameLen, int64(len(r.name)+1)))
		if err != nil {
			return err
		}
		if string(name) != r.name || le.Uint16(header[8:]) != r.method {
			return corrupt(r.header, "the local header of member %q says something else than the directory", r.name)
		}
		end = r.data + r.packed
	}
	return nil
}

func corrupt(off int64, format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, format, args...).At(off)
}

// readFull reads n bytes at off, which were checked to be there.
func readFull(s tensor.Storage, off, n int64) ([]byte, error) {
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
