package dcp

import (
	"io"
	"strings"

	"gefenckpt/internal/fault"

	"github.com/klauspost/compress/zstd"
)

// zstdName is the stream transform of torch that gefenckpt knows: the whole item,
// archive and all, is zstd frames end to end. Descriptors are "name/version" and
// readers must accept any version 1.
const zstdName = "stream.zstd"

// isZstd says whether a list of transforms is the one that is read; if not, the
// fault names what is in the way.
func isZstd(names []string) *fault.Error {
	if len(names) == 1 {
		name, version, _ := strings.Cut(names[0], "/")
		if major, _, _ := strings.Cut(version, "."); name == zstdName && major == "1" {
			return nil
		}
	}
	return fault.New(fault.Unsupported, "its bytes were transformed by %q, and only %s/1 is read", strings.Join(names, " and "), zstdName).
		WithHint("save the checkpoint again without that extension")
}

const (
	zstdWindow = 8 << 20  // the largest window that is decoded, in bytes
	zstdMemory = 16 << 20 // what one decoder may take
)

// decompress writes what the zstd frames in src hold to dst, at most limit bytes.
func decompress(dst io.Writer, src io.Reader, limit int64) (int64, error) {
	decoder, err := zstd.NewReader(src,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow),
		zstd.WithDecoderMaxMemory(zstdMemory))
	if err != nil {
		return 0, fault.New(fault.Internal, "zstd: %w", err)
	}
	defer decoder.Close()
	n, err := io.Copy(dst, io.LimitReader(decoder, limit+1))
	switch {
	case n > limit:
		return n, fault.New(fault.Corrupt, "it decompresses to more than %d bytes, which is more than the item needs", limit)
	case err == nil:
		return n, nil
	case fault.KindOf(err) != fault.Internal: // of reading or spooling
		return n, err
	}
	return n, fault.New(fault.Corrupt, "its zstd stream is damaged after %d decompressed bytes: %w", n, err)
}

// zstdBound is the most that n bytes can take when they are compressed: blocks
// that do not shrink are stored with a header of 3 bytes.
func zstdBound(n int64) int64 {
	const block = 128 << 10
	return n + 3*(n/block+1) + 64
}

// compress writes what src writes as one zstd frame. The frame depends on the
// bytes alone.
func compress(dst io.Writer, src io.WriterTo) (int64, error) {
	out := &counted{w: dst}
	encoder, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return 0, fault.New(fault.Internal, "zstd: %w", err)
	}
	if _, err := src.WriteTo(encoder); err != nil {
		encoder.Close()
		return 0, err
	}
	return out.n, encoder.Close()
}

// counted passes bytes on and counts them.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
