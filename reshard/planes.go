package reshard

import (
	"math"

	"gefenckpt/gefen"
)

// Planes makes the three planes of a target shard from the source. It keeps
// buffers: it is not for use by several goroutines at a time.
type Planes struct {
	shard   *Shard
	target  *gefen.Codebook
	window  window
	pieces  []codes
	outlook outlook

	scales blockCache       // magnitudes, while indices are made
	near   *gefen.Quantizer // of target, once it is needed
	buffer []float32
}

// codes are a piece's codewords, and their indices in the target's codebook.
type codes struct {
	book  *gefen.Codebook
	remap *[256]uint8 // nil: the same
}

// blank is the codebook of pieces without state: zeros, by index 255.
var blank = gefen.Codebook{0: -1, 255: 1}

// Open gives the planes of target rank r's shard of parameter p.
func (plan *Plan) Open(src Source, r, p int) (*Planes, error) {
	return open(plan.topology, src, &plan.Ranks[r], p)
}

func open(t *Topology, src Source, r *Rank, p int) (*Planes, error) {
	shard, param := &r.Shards[p], &t.Params[p]
	x := &Planes{
		shard:   shard,
		target:  r.Codebook,
		window:  window{source: src, param: p, name: param.Name, pieces: shard.Pieces, blockwise: param.Blockwise},
		pieces:  make([]codes, len(shard.Pieces)),
		outlook: newOutlook(param, shard),
	}
	for i, pc := range shard.Pieces {
		if pc.Period == 0 {
			x.pieces[i].book = &blank
			continue
		}
		book, err := codebook(src, pc.Source)
		if err != nil {
			return nil, err
		}
		x.pieces[i] = codes{book, r.Remap[pc.Source]}
	}
	return x, nil
}

// Indices makes those of elements [from, from+len(dst)).
func (x *Planes) Indices(dst []uint8, from int64) error {
	make := x.rename
	switch x.shard.Operation {
	case Expand:
		make = x.signs
	case Coarsen, Relearn:
		make = x.quantize
	}
	for len(dst) > 0 {
		n := min(len(dst), windowElements)
		if err := make(dst[:n], from); err != nil {
			return err
		}
		dst, from = dst[n:], from+int64(n)
	}
	return nil
}

// rename makes the indices of elements that keep their magnitude.
func (x *Planes) rename(dst []uint8, from int64) error {
	for i := range x.shard.Pieces {
		pc := &x.shard.Pieces[i]
		lo, hi := max(from, pc.At), min(from+int64(len(dst)), pc.end())
		if lo >= hi {
			continue
		}
		part := dst[lo-from : hi-from]
		if err := x.window.readIndices(part, pc, lo); err != nil {
			return err
		}
		x.pieces[i].rename(part, part)
	}
	return nil
}

func (c *codes) rename(dst, indices []uint8) {
	if c.remap == nil {
		copy(dst, indices)
		return
	}
	for i, k := range indices {
		dst[i] = c.remap[k]
	}
}

// signs makes the indices of period 1: the sign of the momentum, that of zero
// included.
func (x *Planes) signs(dst []uint8, from int64) error {
	if err := x.window.load(from, int64(len(dst)), true); err != nil {
		return err
	}
	for _, s := range x.window.segments {
		book := x.pieces[s.piece].book
		for i, k := range x.window.indices[s.at : s.at+s.n] {
			dst[s.at+i] = 255
			if math.Signbit(float64(book[k])) {
				dst[s.at+i] = 0
			}
		}
	}
	return nil
}

// quantize makes the indices of blocks that have a new magnitude. Elements whose
// own magnitude it is are renamed, which is the same but for rounding.
func (x *Planes) quantize(dst []uint8, from int64) error {
	if x.near == nil {
		x.near = gefen.NewQuantizer(x.target)
	}
	keep := x.shard.Operation == Coarsen
	return x.scaled(from, int64(len(dst)), func(s segment, scale float32) {
		dst := dst[s.at : s.at+s.n]
		if keep && same(scale, s.magnitude) {
			x.pieces[s.piece].rename(dst, x.window.indices[s.at:s.at+s.n])
			return
		}
		x.near.Nearest(dst, x.values(s, scale))
	})
}

// scaled loads the window of elements [from, from+n) and calls use for the part
// of every segment that lies in one target block, with that block's magnitude.
func (x *Planes) scaled(from, n int64, use func(s segment, scale float32)) error {
	q := x.shard.Period
	first := from / q
	scales, err := x.scales.get(first, (from+n-1)/q, x.Magnitudes)
	if err != nil {
		return err
	}
	if err := x.window.load(from, n, true); err != nil {
		return err
	}
	x.window.byBlock(from, q, func(block int64, s segment) { use(s, scales[block-first]) })
	return nil
}

// values are a segment's momenta in units of scale, 0 where that is 0.
func (x *Planes) values(s segment, scale float32) []float32 {
	x.buffer = grow(x.buffer, s.n)
	if scale == 0 {
		clear(x.buffer)
		return x.buffer
	}
	x.pieces[s.piece].dequantize(x.buffer, x.window.indices[s.at:s.at+s.n], s.magnitude)
	for i := range x.buffer {
		x.buffer[i] /= scale
	}
	return x.buffer
}

// dequantize makes momenta of one source block.
func (c *codes) dequantize(dst []float32, indices []uint8, magnitude float32) {
	for i, k := range indices {
		dst[i] = c.book[k] * magnitude
	}
}

func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// Magnitudes makes those of blocks [from, from+len(dst)).
func (x *Planes) Magnitudes(dst []float32, from int64) error {
	switch x.shard.Operation {
	case Expand:
		return x.expand(dst, from)
	case Coarsen, Relearn:
		return x.peaks(dst, from)
	}
	return x.inherit(dst, from, x.window.source.Magnitudes)
}

// Vmeans makes the second moments of blocks [from, from+len(dst)).
func (x *Planes) Vmeans(dst []float32, from int64) error {
	switch x.shard.Operation {
	case Coarsen:
		return x.blend(dst, from)
	case Relearn:
		return x.means(dst, from)
	}
	return x.inherit(dst, from, x.window.source.Vmeans)
}

// expand makes the magnitudes of period 1.
func (x *Planes) expand(dst []float32, from int64) error {
	return x.window.each(from, from+int64(len(dst)), true, func(at int64) error {
		for _, s := range x.window.segments {
			out := dst[at-from+int64(s.at):][:s.n]
			x.pieces[s.piece].dequantize(out, x.window.indices[s.at:s.at+s.n], s.magnitude)
			for i, m := range out {
				out[i] = float32(math.Abs(float64(m)))
			}
		}
		return nil
	})
}

// peaks makes the magnitudes of blocks that span several source blocks: what
// they agree on, else the largest |m|.
func (x *Planes) peaks(dst []float32, from int64) error {
	q := x.shard.Period
	keep := x.shard.Operation == Coarsen
	var first, peak float32
	even := false
	return x.window.each(from*q, (from+int64(len(dst)))*q, true, func(at int64) error {
		x.window.byBlock(at, q, func(block int64, s segment) {
			offset := at + int64(s.at) - block*q
			if offset == 0 {
				first, peak, even = s.magnitude, 0, keep
			}
			even = even && same(first, s.magnitude)
			peak = max(peak, x.pieces[s.piece].peak(x.window.indices[s.at:s.at+s.n])*s.magnitude)
			if offset+int64(s.n) == q {
				dst[block-from] = peak
				if even {
					dst[block-from] = first
				}
			}
		})
		return nil
	})
}

// peak is the largest absolute codeword in use. Products with one magnitude are
// in the order of their factors, so it gives the largest |m|.
func (c *codes) peak(indices []uint8) float32 {
	low, high := uint8(255), uint8(0)
	for _, k := range indices {
		low, high = min(low, k), max(high, k)
	}
	return max(-c.book[low], c.book[high])
}

// blend makes the second moments of blocks that span several source blocks: what
// they agree on, else [outlook.blended].
func (x *Planes) blend(dst []float32, from int64) error {
	q, o := x.shard.Period, &x.outlook
	var b blend
	return x.window.each(from*q, (from+int64(len(dst)))*q, false, func(at int64) error {
		x.window.byBlock(at, q, func(block int64, s segment) {
			b.add(s, o)
			if b.elements == q {
				dst[block-from] = b.vmean(o)
				b = blend{}
			}
		})
		return nil
	})
}

// blend gathers the second moment of one block.
type blend struct {
	elements int64
	first    float32
	uneven   bool
	v, vy    float64
}

func (b *blend) add(s segment, o *outlook) {
	if b.elements == 0 {
		b.first = s.vmean
	}
	b.uneven = b.uneven || !same(b.first, s.vmean)
	b.elements += int64(s.n)
	if v := o.corrected(s.vmean); v > 0 {
		b.v += float64(float64(s.n) * v)
		b.vy += float64(s.n) * v / o.root(v)
	}
}

func (b *blend) vmean(o *outlook) float32 {
	if !b.uneven {
		return b.first
	}
	return float32(o.blended(b.v, b.vy) * o.bc2)
}

// means makes the second moments that GefenDCPState computes from dense ones. It
// holds one block.
func (x *Planes) means(dst []float32, from int64) error {
	q := x.shard.Period
	block := make([]float32, q)
	return x.window.each(from*q, (from+int64(len(dst)))*q, false, func(at int64) error {
		x.window.byBlock(at, q, func(b int64, s segment) {
			offset := at + int64(s.at) - b*q
			for i := range block[offset : offset+int64(s.n)] {
				block[offset+int64(i)] = s.vmean
			}
			if offset+int64(s.n) == q {
				dst[b-from] = gefen.Mean32(block)
			}
		})
		return nil
	})
}
