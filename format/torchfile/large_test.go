package torchfile

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// sparse is a storage that is zero but for some parts.
type sparse struct {
	Length int64 `json:"size"`
	Parts  []struct {
		At    int64
		Bytes string // hex
	}
	data [][]byte
}

func (s *sparse) Size() int64 { return s.Length }

func (s *sparse) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), s.Length-off))
	if n <= 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	for i, part := range s.Parts {
		switch from := part.At - off; {
		case from >= int64(n) || from+int64(len(s.data[i])) <= 0:
		case from >= 0:
			copy(p[from:n], s.data[i])
		default:
			copy(p[:n], s.data[i][-from:])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// largeArchive is what torch 2.6 wrote for {"a": zeros of 4 GiB + 5, "b": arange(3),
// "c": zeros of 4 GiB + 7, "d": arange(4)}.
func largeArchive(t *testing.T) *sparse {
	t.Helper()
	s := &sparse{}
	if err := json.Unmarshal(read(t, "testdata/large.json"), s); err != nil {
		t.Fatal(err)
	}
	for _, part := range s.Parts {
		data, err := hex.DecodeString(part.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		s.data = append(s.data, data)
	}
	return s
}

func TestMembersPast4GiBAreRead(t *testing.T) {
	a, err := Open(largeArchive(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := storages(a), []int64{1<<32 + 5, 24, 1<<32 + 7, 32}; !slices.Equal(got, want) {
		t.Errorf("storages of %v bytes, expected %v", got, want)
	}
	for key, n := range map[string]int64{"b": 3, "d": 4} {
		data, err := get(t, a, key).(*tensor.Tensor).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got := le.Uint64(data[8*i:]); got != uint64(i) {
				t.Errorf("%s[%d] is %d", key, i, got)
			}
		}
	}
	last := []byte{1, 2, 3, 4, 5}
	if err := get(t, a, "c").(*tensor.Tensor).ReadAt(last, 1<<32+2); err != nil || slices.ContainsFunc(last, func(b byte) bool { return b != 0 }) {
		t.Errorf("the last elements of c are %v, %v", last, err)
	}
}

// zeros is content of so many zero bytes.
type zeroContent int64

func (z zeroContent) Size() int64 { return int64(z) }

func (z zeroContent) WriteTo(w io.Writer) (int64, error) {
	block := make([]byte, 1<<20)
	for n := int64(0); n < int64(z); {
		k, err := w.Write(block[:min(int64(len(block)), int64(z)-n)])
		if n += int64(k); err != nil {
			return n, err
		}
	}
	return int64(z), nil
}

// recorder keeps what is not in large zero blocks of what is written.
type recorder struct {
	sparse
	n int64
}

func (r *recorder) Write(p []byte) (int, error) {
	if len(p) < 1<<20 {
		r.Parts = append(r.Parts, struct {
			At    int64
			Bytes string
		}{At: r.n})
		r.data = append(r.data, slices.Clone(p))
	}
	r.n += int64(len(p))
	return len(p), nil
}

// The headers of members past 4 GiB, and behind them, are those that PyTorch
// writes.
func TestHeadersPast4GiBAreThoseOfPyTorch(t *testing.T) {
	s := largeArchive(t)
	a, err := Open(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(a.Root(), WriteOptions{Prefix: a.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	near, err := readEdges(s)
	if err != nil {
		t.Fatal(err)
	}
	x, _, err := findDirectory(near)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := readDirectory(near, x)
	if err != nil {
		t.Fatal(err)
	}
	central := x.off
	for i := range f.members {
		m := &f.members[i]
		crc := dir.entries[i].crc
		for _, part := range []struct {
			what string
			at   int64
			ours []byte
		}{
			{"local header", m.header, m.local()},
			{"descriptor", m.header + int64(len(m.local())) + m.size, m.descriptor(crc)},
			{"directory entry", central, m.central(crc)},
		} {
			theirs, err := readFull(s, part.at, int64(len(part.ours)))
			if err != nil || !slices.Equal(part.ours, theirs) {
				t.Errorf("the %s of %s at %d is\n% x, expected\n% x (%v)", part.what, m.name, part.at, part.ours, theirs, err)
			}
		}
		central += int64(len(m.central(crc)))
	}
	if f.members[1].name != "large/byteorder" || f.dirOff < 1<<33 {
		t.Errorf("members are %v, the directory is at %d", f.members, f.dirOff)
	}
}

func TestMembersPast4GiBAreWritten(t *testing.T) {
	const n = 1<<32 + 5
	f, err := New(pickle.NewList(&tensor.Tensor{DType: tensor.Uint8, Shape: []int64{n}, Content: zeroContent(n)}, tensor.FromInt64(7)), WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &recorder{}
	written, err := f.WriteTo(w)
	if err != nil || written != f.Size() {
		t.Fatalf("wrote %d bytes of %d: %v", written, f.Size(), err)
	}
	w.Length = w.n
	a, err := Open(w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	items, _ := pickle.Sequence(a.Root())
	if got := items[0].(*tensor.Tensor).Len(); got != n {
		t.Errorf("%d elements, expected %d", got, int64(n))
	}
	if got, err := items[1].(*tensor.Tensor).Scalar(); got != 7 || err != nil {
		t.Errorf("behind them stands %v, %v", got, err)
	}
}
