package reshard

import (
	"math"

	"gefenckpt/internal/fault"
)

// windowElements is how many elements, and how many blocks, are read at a time:
// enough for large reads, little enough to stay in a core's cache.
const windowElements = 1 << 15

// segment is a run of consecutive elements of a target shard that come from one
// source block.
type segment struct {
	at, n            int // elements of the window
	piece            int
	block            int64 // of the source shard
	magnitude, vmean float32
}

// window reads the source's state of a target shard, range by range.
type window struct {
	source    Source
	param     int
	name      string // of the parameter
	pieces    []Piece
	blockwise bool

	segments   []segment
	indices    []uint8
	magnitudes []float32
	vmeans     []float32
}

// each loads the elements [from, to) window by window and calls use for each.
func (w *window) each(from, to int64, indices bool, use func(from int64) error) error {
	for from < to {
		n := min(to-from, windowElements)
		if err := w.load(from, n, indices); err != nil {
			return err
		}
		if err := use(from); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// load reads the segments of elements [from, from+n), n at most windowElements,
// and their indices if they are wanted.
func (w *window) load(from, n int64, indices bool) error {
	w.segments = w.segments[:0]
	if indices {
		w.indices = grow(w.indices, int(n))
	}
	for i := range w.pieces {
		pc := &w.pieces[i]
		lo, hi := max(from, pc.At), min(from+n, pc.end())
		if lo >= hi {
			continue
		}
		at := int(lo - from)
		if err := w.loadBlocks(i, at, lo-pc.At+pc.From, hi-lo); err != nil {
			return err
		}
		if !indices {
			continue
		}
		if err := w.readIndices(w.indices[at:at+int(hi-lo)], pc, lo); err != nil {
			return err
		}
	}
	return nil
}

// loadBlocks appends the segments of source elements [from, from+n) of a piece.
func (w *window) loadBlocks(piece, at int, from, n int64) error {
	pc := &w.pieces[piece]
	if pc.Period == 0 {
		w.segments = append(w.segments, segment{at: at, n: int(n), piece: piece})
		return nil
	}
	first := from / pc.Period
	blocks := int((from+n-1)/pc.Period - first + 1)
	w.magnitudes = grow(w.magnitudes, blocks)
	if err := w.source.Magnitudes(w.magnitudes, w.param, pc.Source, first); err != nil {
		return err
	}
	w.vmeans = grow(w.vmeans, blocks)
	if w.blockwise {
		if err := w.source.Vmeans(w.vmeans, w.param, pc.Source, first); err != nil {
			return err
		}
	} else {
		clear(w.vmeans)
	}
	for b, magnitude := range w.magnitudes {
		if !usable(magnitude) || !usable(w.vmeans[b]) {
			return fault.New(fault.Corrupt, "rank %d, block %d: magnitude %v and second moment %v, expected finite numbers from 0 on",
				pc.Source, first+int64(b), magnitude, w.vmeans[b]).In(w.name)
		}
		begin := max((first+int64(b))*pc.Period-from, 0)
		end := min((first+int64(b)+1)*pc.Period-from, n)
		w.segments = append(w.segments, segment{
			at: at + int(begin), n: int(end - begin), piece: piece, block: first + int64(b),
			magnitude: magnitude, vmean: w.vmeans[b],
		})
	}
	return nil
}

// usable says whether v may be a magnitude or a second moment.
func usable(v float32) bool { return v >= 0 && v <= math.MaxFloat32 }

// readIndices reads the source's indices of the elements of a piece from offset
// on. A piece without state is zeros, whatever the index; +1 times 0 is +0.
func (w *window) readIndices(dst []uint8, pc *Piece, offset int64) error {
	if pc.Period == 0 {
		for i := range dst {
			dst[i] = 255
		}
		return nil
	}
	return w.source.Indices(dst, w.param, pc.Source, offset-pc.At+pc.From)
}

// byBlock calls use for the part of every segment that lies in one block of q
// elements, in order. from is what the window was loaded from.
func (w *window) byBlock(from, q int64, use func(block int64, s segment)) {
	for _, s := range w.segments {
		for s.n > 0 {
			at := from + int64(s.at)
			part := s
			part.n = int(min(int64(s.n), (at/q+1)*q-at))
			use(at/q, part)
			s.at += part.n
			s.n -= part.n
		}
	}
}

// grow is a slice of n elements, s itself if it has room.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
