package torchfile

import (
	"bytes"
	"hash/crc32"
	"io"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

func TestCombineIsTheChecksumOfBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOf(rapid.Byte()).Draw(t, "a"), rapid.SliceOf(rapid.Byte()).Draw(t, "b")
		b = append(b, make([]byte, rapid.IntRange(0, 10_000).Draw(t, "zeros"))...)
		got := combine(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), int64(len(b)))
		if want := crc32.ChecksumIEEE(append(a, b...)); got != want {
			t.Fatalf("%08x, expected %08x", got, want)
		}
	})
}

// Reads in any order, from several goroutines, and what verify adds, come to the
// checksum of the whole.
func TestChecksumOfReadsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 1, 400).Draw(t, "data")
		e := &entry{name: "a/data/0", crc: crc32.ChecksumIEEE(data), packed: int64(len(data)), size: int64(len(data))}
		archive, at := memberOf(e, data)
		r := &record{entry: at, archive: archive}
		type span struct{ off, n int }
		var spans []span
		for range rapid.IntRange(0, 100).Draw(t, "reads") {
			off := rapid.IntRange(0, len(data)-1).Draw(t, "off")
			spans = append(spans, span{off, rapid.IntRange(0, len(data)-off).Draw(t, "n")})
		}
		var readers sync.WaitGroup
		for k := range 2 {
			readers.Go(func() {
				for i := k; i < len(spans); i += 2 {
					p := make([]byte, spans[i].n)
					if n, err := r.ReadAt(p, int64(spans[i].off)); n != len(p) || err != nil || !bytes.Equal(p, data[spans[i].off:][:n]) {
						t.Errorf("read %d bytes of %d: %v", n, len(p), err)
					}
				}
			})
		}
		readers.Wait()
		if err := r.verify(); err != nil {
			t.Fatal(err)
		}
		if want := r.touched.Load(); want != (r.state.Load() == intact) {
			t.Fatalf("touched %v, intact %v", want, !want)
		}
	})
}

// memberOf is an archive of a single stored member, and the member's entry.
func memberOf(e *entry, data []byte) (tensor.Storage, *entry) {
	b := le.AppendUint32(nil, localSig)
	b = append(b, make([]byte, localLen-4)...)
	le.PutUint16(b[26:], uint16(len(e.name)))
	b = append(append(b, e.name...), data...)
	e.limit = int64(len(b))
	return tensor.Memory(b), e
}

// A record whose bytes have changed fails with the read that completes it, and
// ever after.
func TestChangedRecordsFail(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100)
	fresh := func() *record {
		e := &entry{name: "a/data/0", crc: crc32.ChecksumIEEE(data), packed: int64(len(data)), size: int64(len(data))}
		changed := bytes.Clone(data)
		changed[500]++
		archive, e := memberOf(e, changed)
		return &record{entry: e, archive: archive}
	}
	t.Run("read whole", func(t *testing.T) {
		r := fresh()
		_, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
		fails(t, err, fault.Corrupt, "a/data/0: CRC-32 is")
		_, err = r.ReadAt(make([]byte, 1), 0)
		fails(t, err, fault.Corrupt, "CRC-32 is")
		fails(t, r.verify(), fault.Corrupt, "CRC-32 is")
	})
	t.Run("read in part", func(t *testing.T) {
		r := fresh()
		if _, err := r.ReadAt(make([]byte, 10), 20); err != nil {
			t.Error(err)
		}
		fails(t, r.verify(), fault.Corrupt, "CRC-32 is")
	})
	t.Run("read backwards", func(t *testing.T) {
		r := fresh()
		for off := int64(990); off > 0; off -= 10 {
			if _, err := r.ReadAt(make([]byte, 10), off); err != nil {
				t.Error(err)
			}
		}
		_, err := r.ReadAt(make([]byte, 10), 0)
		fails(t, err, fault.Corrupt, "CRC-32 is")
	})
	t.Run("not read", func(t *testing.T) {
		if err := fresh().verify(); err != nil {
			t.Error(err)
		}
	})
}

// metered counts the bytes that are read.
type metered struct {
	tensor.Storage
	bytes int64
}

func (c *metered) ReadAt(p []byte, off int64) (int, error) {
	c.bytes += int64(len(p))
	return c.Storage.ReadAt(p, off)
}

// What is read once in whatever order is not read again to verify it.
func TestVerifyReadsOnlyWhatIsMissing(t *testing.T) {
	data := make([]byte, 1<<20)
	e, n := &entry{name: "x", crc: crc32.ChecksumIEEE(data), packed: 1 << 20, size: 1 << 20}, int64(1<<16)
	archive, e := memberOf(e, data)
	c := &metered{Storage: archive}
	r := &record{entry: e, archive: c}
	for _, i := range []int64{3, 7, 1, 0, 2, 15, 14, 13, 8, 9, 4, 5, 6, 11} { // not 10 and 12
		if _, err := r.ReadAt(make([]byte, n), i*n); err != nil {
			t.Fatal(err)
		}
	}
	before := c.bytes
	if err := r.verify(); err != nil {
		t.Fatal(err)
	}
	if got := c.bytes - before; got != 2*n {
		t.Errorf("%d bytes were read to verify, expected %d", got, 2*n)
	}
	if err := r.verify(); err != nil || c.bytes-before != 2*n {
		t.Errorf("verified twice it reads again: %v", err)
	}
}

// Reads that skip around keep little.
func TestScatteredReadsKeepFewParts(t *testing.T) {
	data := make([]byte, 1<<16)
	e := &entry{name: "x", crc: crc32.ChecksumIEEE(data), packed: 1 << 16, size: 1 << 16}
	archive, e := memberOf(e, data)
	r := &record{entry: e, archive: archive}
	for off := int64(0); off < 1<<16; off += 16 {
		if _, err := r.ReadAt(make([]byte, 1), off); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.sum.parts); n > mostParts {
		t.Errorf("%d parts, expected at most %d", n, mostParts)
	}
	if err := r.verify(); err != nil || r.state.Load() != intact {
		t.Errorf("state %d, %v", r.state.Load(), err)
	}
}

func BenchmarkRecord(b *testing.B) {
	data := make([]byte, 64<<20)
	e := &entry{name: "x", crc: crc32.ChecksumIEEE(data), packed: int64(len(data)), size: int64(len(data))}
	archive, e := memberOf(e, data)
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r := &record{entry: e, archive: archive}
		for off := int64(0); off < r.size; off += int64(len(p)) {
			if _, err := r.ReadAt(p, off); err != nil {
				b.Fatal(err)
			}
		}
		if r.state.Load() != intact {
			b.Fatal("not checked")
		}
	}
}
