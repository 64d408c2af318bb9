package moments

import (
	"math"
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
)

// blocks reads the state of one shard: blocks of consecutive elements, or rows
// and columns of a factored second moment.
type blocks struct {
	state  *checkpoint.State
	book   *gefen.Codebook
	n      int64
	index  []byte
	scale  *scales
	second func(dst []float32, from int64) error
}

func newBlocks(shard *checkpoint.Shard, book *gefen.Codebook) (*blocks, error) {
	s := shard.State
	b := &blocks{state: s, book: book, n: elements(shard.LocalShape), scale: newScales(s.Magnitude, s.Period)}
	switch {
	case s.Vmean != nil:
		vmean := newScales(s.Vmean, s.Period)
		b.second = func(dst []float32, from int64) error {
			return vmean.runs(from, len(dst), func(at, n int, v float32) {
				for i := range dst[at : at+n] {
					dst[at+i] = v
				}
			})
		}
	case s.VRow != nil:
		f, err := newFactored(s.VRow, s.VCol, shard.Row)
		if err != nil {
			return nil, err
		}
		b.second = f.read
	default: // GefenMuon has none
		b.second = zeros(b.n).SecondMoment
	}
	return b, nil
}

func (b *blocks) Len() int64 { return b.n }

func (b *blocks) Momentum(dst []float32, from int64) error {
	b.index = slices.Grow(b.index[:0], len(dst))[:len(dst)]
	if err := b.state.Index.ReadAt(b.index, from); err != nil {
		return err
	}
	return b.scale.runs(from, len(dst), func(at, n int, magnitude float32) {
		index, dst := b.index[at:at+n], dst[at:at+n]
		for i, code := range index {
			dst[i] = b.book[code] * magnitude
		}
	})
}

func (b *blocks) SecondMoment(dst []float32, from int64) error { return b.second(dst, from) }

// factored is the second moment of a matrix from its row and column means:
// v_ij = row_i * col_j / max(mean(row), smallest normal float32), each operation
// rounded to float32, as the optimizer's step computes it.
type factored struct {
	row, col []float32
	first    int64 // row of the matrix that element 0 is in
	mean     float32
}

// smallestNormal is the smallest normal float32.
const smallestNormal = 0x1p-126

func newFactored(row, col *tensor.Tensor, first int64) (*factored, error) {
	f := &factored{row: make([]float32, row.Len()), col: make([]float32, col.Len()), first: first}
	var buffer floats
	if err := buffer.read(row, f.row, 0); err != nil {
		return nil, err
	}
	if err := buffer.read(col, f.col, 0); err != nil {
		return nil, err
	}
	f.mean = float32(math.Max(float64(gefen.Mean32(f.row)), smallestNormal))
	return f, nil
}

func (f *factored) read(dst []float32, from int64) error {
	cols := int64(len(f.col))
	i, j := from/cols+f.first, from%cols
	for k := range dst {
		dst[k] = float32(f.row[i]*f.col[j]) / f.mean
		if j++; j == cols {
			i, j = i+1, 0
		}
	}
	return nil
}
