package torchfile

import (
	"compress/flate"
	"hash/crc32"
	"io"
	"sync/atomic"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// budget is how many bytes deflated members may still unpack to.
type budget struct{ left atomic.Int64 }

// bytes are the bytes of a member: in place, or unpacked in memory.
func (e *entry) bytes(s tensor.Storage, b *budget) (tensor.Storage, error) {
	data, err := e.locate(s)
	if err != nil {
		return nil, err
	}
	packed := &tensor.Section{R: s, Off: data, N: e.packed}
	if e.method == methodStored {
		return packed, nil
	}
	return e.inflate(packed, b)
}

// deflateRatio is how many bytes one deflated byte can stand for at most.
const deflateRatio = 1032

// inflate unpacks a member. torch never writes one; they come from tools that
// repack an archive, so a limit on the size does not hurt.
func (e *entry) inflate(packed *tensor.Section, b *budget) (tensor.Storage, error) {
	if e.size/deflateRatio > e.packed {
		return nil, corrupt(packed.Off, "member %q is said to unpack from %d bytes to %d", e.name, e.packed, e.size)
	}
	if left := b.left.Add(-e.size); left < 0 {
		return nil, fault.New(fault.Resource, "member %q is compressed, and would be %d bytes, which is more than is unpacked in memory", e.name, e.size).At(packed.Off).
			WithHint("unpack the zip file and pack it again without compression (zip -0), or save the checkpoint again with torch.save")
	}
	out := make([]byte, e.size) // a claim, within a budget that the archive's real length sets
	z := flate.NewReader(io.NewSectionReader(packed, 0, packed.N))
	n, err := io.ReadFull(z, out)
	if err == nil {
		if extra, _ := io.CopyN(io.Discard, z, 1); extra > 0 {
			return nil, corrupt(packed.Off, "member %q unpacks to more than the %d bytes of its directory entry", e.name, e.size)
		}
		return tensor.Memory(out), nil
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, corrupt(packed.Off, "member %q unpacks to %d bytes, expected %d", e.name, n, e.size)
	}
	return nil, corrupt(packed.Off, "member %q cannot be unpacked: %w", e.name, err)
}

// whole reads a member whole, at most so many bytes, and checks its checksum.
func (e *entry) whole(s tensor.Storage, b *budget, most int64) ([]byte, error) {
	if e.size > most {
		return nil, fault.New(fault.Resource, "it has %d bytes, expected at most %d", e.size, most).In(e.name)
	}
	src, err := e.bytes(s, b)
	if err != nil {
		return nil, fault.Within(err, "", e.name)
	}
	data, err := readFull(src, 0, e.size)
	if err != nil {
		return nil, fault.Within(err, "", e.name)
	}
	if crc := crc32.ChecksumIEEE(data); e.crc != 0 && crc != e.crc {
		return nil, wrongSum(e, crc)
	}
	return data, nil
}
