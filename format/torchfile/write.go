package torchfile

import (
	"hash/crc32"
	"io"
	"strings"

	"gefenckpt/internal/fault"
)

// bytesContent is a member that is in memory.
type bytesContent string

func (b bytesContent) Size() int64 { return int64(len(b)) }

func (b bytesContent) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(b))
	return int64(n), err
}

// WriteTo writes the archive, front to back. An error of w, or a content that is
// longer or shorter than it said, ends it.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	out := &counted{w: w}
	var directory []byte
	for i := range f.members {
		m := &f.members[i]
		if err := out.write(m.local()); err != nil {
			return out.n, err
		}
		sum := &summed{w: out}
		there, err := sum.Replay(m.size, io.Discard)
		if err == nil && !there {
			_, err = m.content.WriteTo(sum)
		}
		if err != nil {
			return out.n, fault.Within(err, "", m.name)
		}
		if sum.n != m.size {
			return out.n, fault.New(fault.Internal, "member %q came out as %d bytes, expected %d", m.name, sum.n, m.size)
		}
		if err := out.write(m.descriptor(sum.crc)); err != nil {
			return out.n, err
		}
		directory = append(directory, m.central(sum.crc)...)
	}
	directory = append(directory, f.end()...)
	return out.n, out.write(directory)
}

// Replayer is a writer that may have the next bytes already, as one that goes on
// with a file which an earlier run has begun. WriteTo asks for members as a whole,
// so as not to make them again.
type Replayer interface {
	// Replay passes over the next n bytes, if all of them are there, and writes
	// them to tee. If it reports false without an error nothing has happened, and
	// the bytes are to be written.
	Replay(n int64, tee io.Writer) (bool, error)
}

// replay asks a writer that may not be a Replayer.
func replay(w io.Writer, n int64, tee io.Writer) (bool, error) {
	if r, ok := w.(Replayer); ok {
		return r.Replay(n, tee)
	}
	return false, nil
}

// counted counts what passes through.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Replay implements Replayer.
func (c *counted) Replay(n int64, tee io.Writer) (bool, error) {
	there, err := replay(c.w, n, tee)
	if there {
		c.n += n
	}
	return there, err
}

func (c *counted) write(p []byte) error {
	_, err := c.Write(p)
	return err
}

// summed checksums what passes through.
type summed struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (s *summed) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	s.crc = crc32.Update(s.crc, crc32.IEEETable, p[:n])
	return n, err
}

// Replay implements Replayer.
func (s *summed) Replay(n int64, tee io.Writer) (bool, error) {
	passed := &summed{w: tee, n: s.n, crc: s.crc}
	there, err := replay(s.w, n, passed)
	if there {
		s.n, s.crc = passed.n, passed.crc
	}
	return there, err
}

// flags: UTF-8 names and, but for empty members, a data descriptor.
func (m *member) flags() uint16 {
	if m.size == 0 {
		return 0x0800
	}
	return 0x0808
}

func (m *member) large() bool { return m.size >= max32 || m.header >= max32 }

// zip64 is the field of the values that need 64 bits: the size, the length in the
// file, and the offset of the local header. nil if none does.
func (m *member) zip64(packed int64) []byte {
	var wide []int64
	if m.size >= max32 {
		wide = append(wide, m.size, packed)
	}
	if m.header >= max32 {
		wide = append(wide, m.header)
	}
	if wide == nil {
		return nil
	}
	b := le.AppendUint16(nil, zip64Extra)
	b = le.AppendUint16(b, uint16(8*len(wide)))
	for _, v := range wide {
		b = le.AppendUint64(b, uint64(v))
	}
	return b
}

// local is the local header, up to the data. Checksum and sizes are zero: they
// stand in the descriptor behind the data. Of a large member torch writes the size
// all the same, and zero for its length in the file.
func (m *member) local() []byte {
	extra := m.zip64(0)
	b := le.AppendUint32(nil, localSig)
	b = le.AppendUint16(b, 0) // version needed
	b = le.AppendUint16(b, m.flags())
	b = append(b, make([]byte, 2+4+4+4+4)...) // method, time and date, CRC, sizes
	b = le.AppendUint16(b, uint16(len(m.name)))
	b = le.AppendUint16(b, uint16(len(extra)+4+m.padding))
	b = append(b, m.name...)
	b = append(b, extra...)
	b = append(b, 'F', 'B')
	b = le.AppendUint16(b, uint16(m.padding))
	return append(b, strings.Repeat("Z", m.padding)...)
}

// descriptor stands behind the data of members that are not empty.
func (m *member) descriptor(crc uint32) []byte {
	if m.size == 0 {
		return nil
	}
	b := le.AppendUint32(nil, descriptorSig)
	b = le.AppendUint32(b, crc)
	if m.large() {
		b = le.AppendUint64(b, uint64(m.size))
		return le.AppendUint64(b, uint64(m.size))
	}
	b = le.AppendUint32(b, uint32(m.size))
	return le.AppendUint32(b, uint32(m.size))
}

// central is the member's entry in the directory.
func (m *member) central(crc uint32) []byte {
	size, header, extra := uint32(min(m.size, max32)), uint32(min(m.header, max32)), m.zip64(m.size)
	b := le.AppendUint32(nil, centralSig)
	b = append(b, 0, 0, 0, 0) // version made by, version needed
	b = le.AppendUint16(b, m.flags())
	b = append(b, make([]byte, 2+4)...) // method, time and date
	b = le.AppendUint32(b, crc)
	b = le.AppendUint32(b, size)
	b = le.AppendUint32(b, size)
	b = le.AppendUint16(b, uint16(len(m.name)))
	b = le.AppendUint16(b, uint16(len(extra)))
	b = append(b, make([]byte, 2+2+2+4)...) // comment, disk, attributes
	b = le.AppendUint32(b, header)
	b = append(b, m.name...)
	return append(b, extra...)
}

// end is the zip64 end record, its locator and the end record; torch writes all
// three whatever the size.
func (f *File) end() []byte {
	n := len(f.members)
	b := le.AppendUint32(nil, end64Sig)
	b = le.AppendUint64(b, end64Len-12)
	b = le.AppendUint16(b, 0x031e) // made by
	b = le.AppendUint16(b, 45)     // version needed
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint64(b, uint64(n))
	b = le.AppendUint64(b, uint64(n))
	b = le.AppendUint64(b, uint64(f.dirLen))
	b = le.AppendUint64(b, uint64(f.dirOff))

	b = le.AppendUint32(b, locatorSig)
	b = append(b, 0, 0, 0, 0)
	b = le.AppendUint64(b, uint64(f.dirOff+f.dirLen))
	b = le.AppendUint32(b, 1)

	b = le.AppendUint32(b, endSig)
	b = append(b, 0, 0, 0, 0)
	count := uint16(min(n, max16))
	b = le.AppendUint16(b, count)
	b = le.AppendUint16(b, count)
	b = le.AppendUint32(b, uint32(min(f.dirLen, max32)))
	b = le.AppendUint32(b, uint32(min(f.dirOff, max32)))
	return append(b, 0, 0)
}
