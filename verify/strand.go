package verify

import (
	"encoding/binary"
	"math"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/moments"
	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
)

// strand is one parameter of a checkpoint as block state, shard after shard in
// the order of the rows.
type strand struct {
	shards []strandShard
	n      int64
}

// strandShard is a run of elements with one codebook and one period.
type strandShard struct {
	start, n int64
	state    *checkpoint.State
	book     *gefen.Codebook
	q        *gefen.Quantizer
}

// quantizers are those of a checkpoint's ranks, made when they are needed.
type quantizers struct {
	c    *checkpoint.Checkpoint
	book []*gefen.Codebook
	q    []*gefen.Quantizer
}

func newQuantizers(c *checkpoint.Checkpoint) *quantizers {
	return &quantizers{c, make([]*gefen.Codebook, len(c.Ranks)), make([]*gefen.Quantizer, len(c.Ranks))}
}

func (x *quantizers) of(rank int) (*gefen.Codebook, *gefen.Quantizer, error) {
	if x.q[rank] == nil {
		book, err := moments.Codebook(x.c.Ranks[rank].Codebook)
		if err != nil {
			return nil, nil, err
		}
		x.book[rank], x.q[rank] = book, gefen.NewQuantizer(book)
	}
	return x.book[rank], x.q[rank], nil
}

// strandOf is parameter p of c, nil where it cannot be carried on: the dense form
// has no blocks, and a second moment may be factored or missing.
func strandOf(c *checkpoint.Checkpoint, quantizers *quantizers, p int) (*strand, error) {
	s := &strand{}
	for _, r := range moments.Holders(c, p) {
		shard := &c.Ranks[r].Shards[p]
		n, _ := tensor.Volume(shard.LocalShape)
		if shard.State == nil || shard.State.Index == nil || shard.State.Vmean == nil || shard.State.VRow != nil {
			return nil, nil
		}
		book, q, err := quantizers.of(r)
		if err != nil {
			return nil, err
		}
		s.shards = append(s.shards, strandShard{s.n, n, shard.State, book, q})
		s.n += n
	}
	if s.n == 0 {
		return nil, nil
	}
	return s, nil
}

// boundary is the first start of a block, or the end, at or behind element at.
func (s *strand) boundary(at int64) int64 {
	for i := range s.shards {
		sh := &s.shards[i]
		if at > sh.start+sh.n {
			continue
		}
		blocks := (at - sh.start + sh.state.Period - 1) / sh.state.Period
		return min(sh.start+blocks*sh.state.Period, sh.start+sh.n)
	}
	return s.n
}

// common is the first element at or behind at where a block starts in both.
func common(a, b *strand, at int64) int64 {
	for {
		x := a.boundary(at)
		y := b.boundary(x)
		if x == y {
			return x
		}
		at = y
	}
}

// piece is the part of a strand that a segment covers within one shard, in
// memory.
type piece struct {
	at, n  int // within the segment
	shard  *strandShard
	blocks gefen.Blocks
}

// read loads the blocks of the elements [from, to), which begin and end blocks.
func (s *strand) read(from, to int64) ([]piece, error) {
	var out []piece
	for i := range s.shards {
		sh := &s.shards[i]
		lo, hi := max(from, sh.start), min(to, sh.start+sh.n)
		if lo >= hi {
			continue
		}
		period := sh.state.Period
		first, last := (lo-sh.start)/period, (hi-sh.start)/period
		b := gefen.Blocks{Period: int(period), Index: make([]uint8, hi-lo), Magnitude: make([]float32, last-first), Vmean: make([]float32, last-first)}
		if err := sh.state.Index.ReadAt(b.Index, lo-sh.start); err != nil {
			return nil, err
		}
		for _, plane := range []struct {
			t   *tensor.Tensor
			dst []float32
		}{{sh.state.Magnitude, b.Magnitude}, {sh.state.Vmean, b.Vmean}} {
			raw := make([]byte, 4*len(plane.dst))
			if err := plane.t.ReadAt(raw, first); err != nil {
				return nil, err
			}
			for i := range plane.dst {
				plane.dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			}
		}
		out = append(out, piece{int(lo - from), int(hi - lo), sh, b})
	}
	return out, nil
}

// expand writes the momentum and the second moment of the pieces' elements.
func expand(pieces []piece, m, v []float32) {
	for _, p := range pieces {
		p.shard.book.Dequantize(m[p.at:p.at+p.n], p.blocks.Index, p.blocks.Magnitude, p.blocks.Period, 0)
		for b, x := range p.blocks.Vmean {
			block := v[p.at+b*p.blocks.Period : p.at+(b+1)*p.blocks.Period]
			for i := range block {
				block[i] = x
			}
		}
	}
}
