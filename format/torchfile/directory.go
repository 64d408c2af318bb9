package torchfile

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// entry is one member of an archive, as the directory describes it.
type entry struct {
	name         string
	method       uint16
	crc          uint32
	packed, size int64 // bytes in the file, and unpacked
	header       int64 // offset of the local header
	limit        int64 // where the next member, or the directory, begins
}

// directory is the central directory.
type directory struct {
	entries []entry
	byName  map[string]int
}

// mostDirectory is the length of a directory, in bytes, that is not read
// any more: four million members.
const mostDirectory = 256 << 20

// readDirectory reads the central directory of the archive that fills s. Sizes
// and checksums come from there alone: torch writes zeros in local headers.
func readDirectory(s tensor.Storage, x extent) (*directory, error) {
	switch {
	case x.length > mostDirectory:
		return nil, fault.New(fault.Resource, "the zip directory has %d bytes, expected at most %d", x.length, mostDirectory).At(x.off)
	case x.count > uint64(x.length)/centralLen:
		return nil, corrupt(x.off, "the zip directory names %d members, its %d bytes hold at most %d", x.count, x.length, x.length/centralLen)
	}
	raw, err := readFull(s, x.off, x.length)
	if err != nil {
		return nil, err
	}
	d := &directory{entries: make([]entry, 0, x.count), byName: make(map[string]int, x.count)}
	pos := 0
	for range x.count {
		at := x.off + int64(pos)
		e, n, err := parseEntry(raw[pos:], at)
		if err != nil {
			return nil, err
		}
		pos += n
		if strings.HasSuffix(e.name, "/") && e.size == 0 { // a folder, from tools that repack
			continue
		}
		if !fs.ValidPath(e.name) || strings.ContainsFunc(e.name, unicode.IsControl) {
			return nil, corrupt(at, "member name %q is no plain path", e.name)
		}
		if _, twice := d.byName[e.name]; twice {
			return nil, corrupt(at, "two members are named %q", e.name)
		}
		d.byName[e.name] = len(d.entries)
		d.entries = append(d.entries, e)
	}
	if pos < len(raw) {
		return nil, corrupt(x.off+int64(pos), "the zip directory of %d members has %d bytes more", x.count, len(raw)-pos)
	}
	return d, d.bound(x.off)
}

// parseEntry reads one entry of the directory, at off, and returns its length.
func parseEntry(b []byte, off int64) (entry, int, error) {
	if len(b) < centralLen || le.Uint32(b) != centralSig {
		return entry{}, 0, corrupt(off, "no zip directory entry where one is expected")
	}
	nameLen, extraLen, commentLen := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	n := centralLen + nameLen + extraLen + commentLen
	if n > len(b) {
		return entry{}, 0, corrupt(off, "a zip directory entry of %d bytes where %d are left", n, len(b))
	}
	e := entry{
		name: string(b[centralLen : centralLen+nameLen]), method: le.Uint16(b[10:]), crc: le.Uint32(b[16:]),
		packed: int64(le.Uint32(b[20:])), size: int64(le.Uint32(b[24:])), header: int64(le.Uint32(b[42:])),
	}
	if err := e.widen(b[centralLen+nameLen:][:extraLen], off); err != nil {
		return entry{}, 0, err
	}
	switch {
	case e.size < 0 || e.packed < 0 || e.header < 0:
		return entry{}, 0, corrupt(off, "member %q has a size or offset past 2^63", e.name)
	case le.Uint16(b[8:])&flagEncrypted != 0:
		return entry{}, 0, fault.New(fault.Unsupported, "member %q is encrypted", e.name).At(off)
	case e.method != methodStored && e.method != methodDeflate:
		return entry{}, 0, fault.New(fault.Unsupported, "member %q is compressed by method %d, expected 0 (stored) or 8 (deflate)", e.name, e.method).At(off)
	case e.method == methodStored && e.packed != e.size:
		return entry{}, 0, corrupt(off, "member %q is stored in %d bytes and said to hold %d", e.name, e.packed, e.size)
	}
	return e, n, nil
}

// widen takes the 64-bit values of the fields that are all ones.
func (e *entry) widen(extra []byte, off int64) error {
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if n > len(extra)-4 {
			return corrupt(off, "an extra field of member %q is cut short", e.name)
		}
		field := extra[4 : 4+n]
		extra = extra[4+n:]
		if id != zip64Extra {
			continue
		}
		for _, v := range []*int64{&e.size, &e.packed, &e.header} {
			if *v != max32 {
				continue
			}
			if len(field) < 8 {
				return corrupt(off, "the zip64 field of member %q is cut short", e.name)
			}
			*v, field = int64(le.Uint64(field)), field[8:]
		}
	}
	return nil
}

// bound finds how far each member may reach, and that none reaches into another
// or into the directory at off.
func (d *directory) bound(off int64) error {
	order := make([]*entry, len(d.entries))
	for i := range order {
		order[i] = &d.entries[i]
	}
	slices.SortFunc(order, func(a, b *entry) int { return cmp.Compare(a.header, b.header) })
	for i, e := range order {
		e.limit = off
		if i+1 < len(order) {
			e.limit = order[i+1].header
		}
		if e.header > e.limit-localLen-int64(len(e.name)) || e.packed > e.limit-localLen-int64(len(e.name))-e.header {
			return corrupt(e.header, "member %q of %d bytes overlaps what begins at %d", e.name, e.packed, e.limit)
		}
	}
	return nil
}

// locate finds where a member's bytes begin, behind its local header.
func (e *entry) locate(s tensor.Storage) (int64, error) {
	b, err := readFull(s, e.header, localLen+int64(len(e.name)))
	if err != nil {
		return 0, err
	}
	nameLen, extraLen := int64(le.Uint16(b[26:])), int64(le.Uint16(b[28:]))
	switch {
	case le.Uint32(b) != localSig:
		return 0, corrupt(e.header, "no local header where member %q is said to be", e.name)
	case nameLen != int64(len(e.name)) || string(b[localLen:]) != e.name || le.Uint16(b[8:]) != e.method || le.Uint16(b[6:])&flagEncrypted != 0:
		return 0, corrupt(e.header, "the local header of member %q says something else than the directory", e.name)
	}
	data := e.header + localLen + nameLen + extraLen
	if data > e.limit || e.packed > e.limit-data {
		return 0, corrupt(e.header, "member %q of %d bytes overlaps what begins at %d", e.name, e.packed, e.limit)
	}
	return data, nil
}
