package convert

import (
	"encoding/binary"
	"io"
	"math"

	"gefenckpt/format/moments"
)

// chunkElements is how many elements are expanded at a time: enough for large
// reads and writes, little enough to stay in the cache of a core.
const chunkElements = 1 << 16

// moment is a part of one of the two dense float32 planes of a parameter. It is a
// tensor.Content.
type moment struct {
	open     func() (moments.Reader, error)
	read     func(r moments.Reader, dst []float32, from int64) error
	from     int64 // first element of the part
	elements int64
}

// Size is in bytes.
func (m *moment) Size() int64 { return 4 * m.elements }

// WriteTo expands the shard chunk by chunk.
func (m *moment) WriteTo(w io.Writer) (int64, error) {
	r, err := m.open()
	if err != nil {
		return 0, err
	}
	values := make([]float32, min(m.elements, chunkElements))
	raw := make([]byte, 4*len(values))
	var written int64
	for from := int64(0); from < m.elements; from += chunkElements {
		values := values[:min(m.elements-from, chunkElements)]
		if err := m.read(r, values, m.from+from); err != nil {
			return written, err
		}
		for i, v := range values {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		k, err := w.Write(raw[:4*len(values)])
		written += int64(k)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
