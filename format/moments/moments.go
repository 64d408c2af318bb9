// Package moments reads the dense state of a checkpoint of any form, range by
// range: per element the momentum m = codebook[index]*magnitude and the second
// moment v, both float32. It is what the optimizer means, and what two
// checkpoints are compared by.
package moments

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// Reader reads the moments of consecutive elements, numbered from 0. Both
// methods fill dst with the elements from, from+1, ... and may keep buffers
// from call to call: a Reader is not safe for concurrent use.
type Reader interface {
	// Len is the number of elements.
	Len() int64
	Momentum(dst []float32, from int64) error
	SecondMoment(dst []float32, from int64) error
}

// OfShard reads the shard of parameter p that rank r of a compact or native
// checkpoint holds. A shard without state reads as zeros, which is what its
// dense form holds.
func OfShard(cp *checkpoint.Checkpoint, r, p int) (Reader, error) {
	rank := &cp.Ranks[r]
	shard := &rank.Shards[p]
	n := elements(shard.LocalShape)
	if shard.State == nil || n == 0 {
		return zeros(n), nil
	}
	if rank.Codebook == nil {
		return nil, fault.New(fault.Corrupt, "rank %d has momentum but no codebook", rank.GlobalRank).In(cp.Params[p].Name)
	}
	book, err := Codebook(rank.Codebook)
	if err != nil {
		return nil, fault.Within(err, cp.Path, cp.Params[p].Name)
	}
	return newBlocks(shard, book)
}

// OfParameter reads parameter p whole, in the order of its rows, whatever rank
// holds them.
func OfParameter(cp *checkpoint.Checkpoint, p int) (Reader, error) {
	if len(cp.Slots) > 0 {
		return &slot{cp.Slots[p], floats{}}, nil
	}
	var all joined
	for _, r := range Holders(cp, p) {
		reader, err := OfShard(cp, r, p)
		if err != nil {
			return nil, err
		}
		all.add(reader)
	}
	return &all, nil
}

// Holders are the ranks whose shards make up parameter p, in the order of its
// rows, without those that hold none. Of a parameter that every rank holds whole
// it is the first.
func Holders(cp *checkpoint.Checkpoint, p int) []int {
	if !cp.Params[p].Placement.Rows() && len(cp.Ranks) > 0 {
		return []int{0}
	}
	ranks := make([]int, 0, len(cp.Ranks))
	for r := range cp.Ranks {
		if elements(cp.Ranks[r].Shards[p].LocalShape) > 0 {
			ranks = append(ranks, r)
		}
	}
	slices.SortFunc(ranks, func(a, b int) int {
		return cmp.Compare(cp.Ranks[a].Shards[p].Row, cp.Ranks[b].Shards[p].Row)
	})
	return ranks
}

// Codebook reads a codebook tensor: float32 (256,).
func Codebook(t *tensor.Tensor) (*gefen.Codebook, error) {
	if t.DType != tensor.Float32 || t.Len() != 256 {
		return nil, fault.New(fault.Corrupt, "codebook is %s %v, expected float32 [256]", t.DType, t.Shape)
	}
	var book gefen.Codebook
	return &book, (&floats{}).read(t, book[:], 0)
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// zeros is a reader of n zeros.
type zeros int64

func (z zeros) Len() int64                              { return int64(z) }
func (zeros) Momentum(dst []float32, _ int64) error     { clear(dst); return nil }
func (zeros) SecondMoment(dst []float32, _ int64) error { clear(dst); return nil }

// slot reads the dense form.
type slot struct {
	slot   checkpoint.Slot
	floats floats
}

func (s *slot) Len() int64 { return s.slot.Momentum.Len() }

func (s *slot) Momentum(dst []float32, from int64) error {
	return s.floats.read(s.slot.Momentum, dst, from)
}

func (s *slot) SecondMoment(dst []float32, from int64) error {
	return s.floats.read(s.slot.SecondMoment, dst, from)
}

// joined reads several readers end to end.
type joined struct {
	parts  []Reader
	starts []int64
	n      int64
}

func (j *joined) add(r Reader) {
	j.parts = append(j.parts, r)
	j.starts = append(j.starts, j.n)
	j.n += r.Len()
}

func (j *joined) Len() int64 { return j.n }

func (j *joined) Momentum(dst []float32, from int64) error {
	return j.each(dst, from, Reader.Momentum)
}

func (j *joined) SecondMoment(dst []float32, from int64) error {
	return j.each(dst, from, Reader.SecondMoment)
}

func (j *joined) each(dst []float32, from int64, read func(Reader, []float32, int64) error) error {
	for i, part := range j.parts {
		within := from - j.starts[i]
		if len(dst) == 0 || within >= part.Len() {
			continue
		}
		n := min(int64(len(dst)), part.Len()-within)
		if err := read(part, dst[:n], within); err != nil {
			return err
		}
		dst, from = dst[n:], from+n
	}
	return nil
}

// floats reads float32 tensors through a buffer of its own.
type floats struct{ raw []byte }

func (f *floats) read(t *tensor.Tensor, dst []float32, from int64) error {
	f.raw = slices.Grow(f.raw[:0], 4*len(dst))[:4*len(dst)]
	if err := t.ReadAt(f.raw, from); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(f.raw[4*i:]))
	}
	return nil
}
