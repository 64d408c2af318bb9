package reshard

// reader reads one value per source block: [Source.Magnitudes] or [Source.Vmeans].
type reader func(dst []float32, param, rank int, from int64) error

// inherit gives blocks [from, from+len(dst)) what the source block has that their
// first element is in.
func (x *Planes) inherit(dst []float32, from int64, read reader) error {
	q := x.shard.Period
	for i := range x.shard.Pieces {
		pc := &x.shard.Pieces[i]
		// The blocks that begin in the piece.
		lo := max(from, (pc.At+q-1)/q)
		hi := min(from+int64(len(dst)), (pc.end()-1)/q+1)
		if lo >= hi {
			continue
		}
		part := dst[lo-from : hi-from]
		if pc.Period == 0 {
			clear(part)
			continue
		}
		if err := x.inheritPiece(part, lo*q-pc.At+pc.From, pc, read); err != nil {
			return err
		}
	}
	return nil
}

// inheritPiece fills dst for blocks that begin at source element from and every
// Period elements after it.
func (x *Planes) inheritPiece(dst []float32, from int64, pc *Piece, read reader) error {
	q, p := x.shard.Period, pc.Period
	if q == p {
		return read(dst, x.window.param, pc.Source, from/p)
	}
	step := int(min(max(windowElements*(p/q), windowElements/max(q/p, 1), 1), int64(len(dst))))
	for len(dst) > 0 {
		n := min(len(dst), step)
		first, last := from/p, (from+int64(n-1)*q)/p
		x.buffer = grow(x.buffer, int(last-first+1))
		if err := read(x.buffer, x.window.param, pc.Source, first); err != nil {
			return err
		}
		for i := range dst[:n] {
			dst[i] = x.buffer[(from+int64(i)*q)/p-first]
		}
		dst, from = dst[n:], from+int64(n)*q
	}
	return nil
}
