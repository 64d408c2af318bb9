package gefen

// Blocks is the state of consecutive blocks of one parameter, each of Period
// consecutive elements: Period indices, one magnitude and one second moment per
// block. Vmean is nil where the second moment is factored.
type Blocks struct {
	Period    int
	Index     []uint8
	Magnitude []float32
	Vmean     []float32
}

// Slice is blocks from to end.
func (b Blocks) Slice(from, end int) Blocks {
	b.Index = b.Index[from*b.Period : end*b.Period]
	b.Magnitude = b.Magnitude[from:end]
	if b.Vmean != nil {
		b.Vmean = b.Vmean[from:end]
	}
	return b
}

// groups yields the blocks in groups, each as many as make a tile, or one that is
// larger, with the range of elements that a group covers.
func (b Blocks) groups(yield func(group Blocks, at, end int)) {
	for from := 0; from < len(b.Magnitude); {
		to := min(from+max(1, tile/b.Period), len(b.Magnitude))
		yield(b.Slice(from, to), from*b.Period, to*b.Period)
		from = to
	}
}

// work holds the temporaries of a tile, by element: its momentum, magnitudes, and
// factors from momentum to step size; and such factors by block.
type work struct {
	m, mag, scale, block [tile]float32
}

// Blocks steps the blocks b, with a second moment per block, by the gradient g of
// their elements. The parameter's values p are decayed and updated, unless p is nil;
// u is set to the update, what is taken from the decayed values, unless u is nil.
func (s *Step) Blocks(p, u, g []float32, b Blocks) {
	var w work
	b.groups(func(b Blocks, at, end int) {
		s.secondMoments(&w, g[at:end], b)
		s.requantize(&w, g[at:end], b)
		s.finish(&w, part(p, at, end), part(u, at, end), b, func(at int, scale []float32) {
			spread(scale, w.block[:], b.Period, at)
		})
	})
}

// secondMoments advances the second moments of a group of blocks, and sets w.block to
// their factors from momentum to step size.
func (s *Step) secondMoments(w *work, g []float32, b Blocks) {
	if len(g) > tile {
		w.block[0] = s.secondMoment(&b.Vmean[0], sumSquares(s.dtype, g)/float32(len(g)))
		return
	}
	squares(s.dtype, w.m[:], g)
	for i := range b.Vmean {
		w.block[i] = s.secondMoment(&b.Vmean[i], Mean32(w.m[i*b.Period:(i+1)*b.Period]))
	}
}

// secondMoment advances a block's second moment v by the mean of the squared
// gradient, and returns the factor from momentum to step size.
func (s *Step) secondMoment(v *float32, mean float32) float32 {
	if s.dtype == BFloat16 {
		mean = RoundBFloat16(mean)
	}
	*v = mulAdd32(s.fused, mean, s.add, *v*s.keep)
	h := sqrt32(*v)/s.rootBC2 + s.eps
	return 1 / h * s.invBC1
}

// requantize advances the momentum of a group of blocks by the gradient g.
func (s *Step) requantize(w *work, g []float32, b Blocks) {
	if len(g) <= tile {
		s.lerp(w, g, b.Index, b.Magnitude, b.Period)
		for i := range b.Magnitude {
			b.Magnitude[i] = AbsMax(w.m[i*b.Period : (i+1)*b.Period])
		}
		s.quantize(w, b.Index, b.Magnitude, b.Period)
		return
	}
	// One block, whose new momentum is worked out twice, first for its largest value.
	var mag [1]float32
	for at := 0; at < len(g); at += tile {
		end := min(at+tile, len(g))
		s.lerp(w, g[at:end], b.Index[at:end], b.Magnitude, b.Period)
		mag[0] = max(mag[0], AbsMax(w.m[:end-at]))
	}
	for at := 0; at < len(g); at += tile {
		end := min(at+tile, len(g))
		s.lerp(w, g[at:end], b.Index[at:end], b.Magnitude, b.Period)
		s.quantize(w, b.Index[at:end], mag[:], b.Period)
	}
	b.Magnitude[0] = mag[0]
}

// lerp sets w.m to the old momentum of a tile of blocks moved towards the gradient g.
func (s *Step) lerp(w *work, g []float32, index []uint8, magnitude []float32, period int) {
	mag, m := w.mag[:len(g)], w.m[:len(g)]
	index = index[:len(g)]
	spread(mag, magnitude, period, 0)
	weight, far := lerpWeight(s.weight)
	for i, to := range g {
		from := s.codewords[index[i]] * mag[i]
		end := from
		if far {
			end = to
		}
		if !s.fused {
			m[i] = float32(weight*(to-from)) + end
			continue
		}
		// FMA32, of which the compiler would not inline the usual path.
		sum := float64(weight)*float64(to-from) + float64(end)
		m[i] = float32(sum)
		if maybeHalfway(sum) {
			m[i] = FMA32(weight, to-from, end)
		}
	}
}

// quantize sets the indices of a tile of blocks to those of the momentum w.m.
func (s *Step) quantize(w *work, index []uint8, magnitude []float32, period int) {
	mag, m := w.mag[:len(index)], w.m[:len(index)]
	spread(mag, magnitude, period, 0)
	for i, v := range m {
		if mag[i] != 0 { // else v is 0 too
			v /= mag[i]
		}
		m[i] = v
	}
	s.quantizer.Nearest(index, m)
}

// finish works out the updates of a group of blocks, and applies them to p unless that
// is nil. They are left in u unless that is. scales sets the factors from momentum to
// step size of the elements of the group from at on.
func (s *Step) finish(w *work, p, u []float32, b Blocks, scales func(at int, scale []float32)) {
	if p == nil && u == nil {
		return
	}
	for at := 0; at < len(b.Index); at += tile {
		index := b.Index[at:min(at+tile, len(b.Index))]
		n := len(index)
		mag, scale, out := w.mag[:n], w.scale[:n], w.m[:n]
		if u != nil {
			out = u[at : at+n]
		}
		scales(at, scale)
		spread(mag, b.Magnitude, b.Period, at)
		for i, code := range index {
			out[i] = s.codewords[code] * mag[i] * scale[i] * s.lr
		}
		if p != nil {
			s.apply(p[at:at+n], out)
		}
	}
}

// apply decays the parameter's values p and takes the update u from them.
func (s *Step) apply(p, u []float32) {
	u = u[:len(p)]
	if s.dtype == BFloat16 {
		for i, v := range p {
			p[i] = RoundBFloat16(RoundBFloat16(v*s.decay) - u[i])
		}
		return
	}
	for i, v := range p {
		p[i] = float32(v*s.decay) - u[i]
	}
}

// spread sets dst to the values of the blocks that its elements are in, of which the
// first is element at.
func spread(dst, blocks []float32, period, at int) {
	if period == 1 {
		copy(dst, blocks[at:])
		return
	}
	for b := at / period; len(dst) > 0; b++ {
		n := min((b+1)*period-at, len(dst))
		v := blocks[b]
		for i := range dst[:n] {
			dst[i] = v
		}
		dst, at = dst[n:], at+n
	}
}

// part is x[at:end], or nil of nil.
func part(x []float32, at, end int) []float32 {
	if x == nil {
		return nil
	}
	return x[at:end]
}

// lerpWeight is what the difference from momentum to gradient is multiplied by before
// it is added to the nearer of the two: to the gradient where far.
func lerpWeight(weight float32) (w float32, far bool) {
	if weight < 0.5 {
		return weight, false
	}
	return weight - 1, true
}
