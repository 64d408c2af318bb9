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

// Blocks steps the blocks b, with a second moment per block, by the gradient g of
// their elements. The parameter's values p are decayed and updated, unless p is nil;
// u is set to the update, what is taken from the decayed values, unless u is nil.
func (s *Step) Blocks(p, u, g []float32, b Blocks) {
	b.groups(func(b Blocks, at, end int) {
		var scale [tile]float32
		s.secondMoments(&scale, g[at:end], b)
		s.requantize(g[at:end], b)
		s.finish(part(p, at, end), part(u, at, end), end-at, func(u []float32, at int) {
			for i := at / b.Period; len(u) > 0; i++ {
				n := min((i+1)*b.Period-at, len(u))
				s.update(u[:n], b.Index[at:at+n], b.Magnitude[i], scale[i])
				u, at = u[n:], at+n
			}
		})
	})
}

// secondMoments advances the second moments of a group of blocks, and sets scale to
// the factors from momentum to step size.
func (s *Step) secondMoments(scale *[tile]float32, g []float32, b Blocks) {
	if len(g) > tile {
		scale[0] = s.secondMoment(&b.Vmean[0], sumSquares(s.dtype, g)/float32(len(g)))
		return
	}
	var q [tile]float32
	squares(s.dtype, q[:], g)
	for i := range b.Vmean {
		scale[i] = s.secondMoment(&b.Vmean[i], Mean32(q[i*b.Period:(i+1)*b.Period]))
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
func (s *Step) requantize(g []float32, b Blocks) {
	var m [tile]float32
	if len(g) > tile {
		s.requantizeLarge(m[:], g, b)
		return
	}
	for i, mag := range b.Magnitude {
		at, end := i*b.Period, (i+1)*b.Period
		s.lerp(m[at:end], g[at:end], b.Index[at:end], mag)
		b.Magnitude[i] = normalize(m[at:end])
	}
	s.quantizer.Nearest(b.Index, m[:len(g)])
}

// requantizeLarge does so for one block that does not fit in m. It works out the new
// momentum twice, first for its largest value.
func (s *Step) requantizeLarge(m, g []float32, b Blocks) {
	old, mag := b.Magnitude[0], float32(0)
	for at := 0; at < len(g); at += len(m) {
		end := min(at+len(m), len(g))
		s.lerp(m[:end-at], g[at:end], b.Index[at:end], old)
		mag = max(mag, AbsMax(m[:end-at]))
	}
	for at := 0; at < len(g); at += len(m) {
		end := min(at+len(m), len(g))
		s.lerp(m[:end-at], g[at:end], b.Index[at:end], old)
		divide(m[:end-at], mag)
		s.quantizer.Nearest(b.Index[at:end], m[:end-at])
	}
	b.Magnitude[0] = mag
}

// lerp sets m to the old momentum of part of a block moved towards the gradient g.
func (s *Step) lerp(m, g []float32, index []uint8, mag float32) {
	g, index = g[:len(m)], index[:len(m)]
	w := s.weight
	near := w < 0.5 // which end PyTorch reckons from
	if !near {
		w--
	}
	for i, to := range g {
		from := s.codewords[index[i]] * mag
		end := from
		if !near {
			end = to
		}
		m[i] = mulAdd32(s.fused, w, to-from, end)
	}
}

// divide divides momentum by its block's magnitude; it is zero where that is.
func divide(m []float32, mag float32) {
	if mag == 0 {
		clear(m)
		return
	}
	for i, v := range m {
		m[i] = v / mag
	}
}

// update sets u to the update of part of a block: its requantized momentum times
// scale and learning rate.
func (s *Step) update(u []float32, index []uint8, mag, scale float32) {
	index = index[:len(u)]
	for i, code := range index {
		u[i] = s.codewords[code] * mag * scale * s.lr
	}
}

// finish has the updates of n elements worked out, a tile from element at on at a
// time, and applies them to p unless that is nil. They are left in u unless that is.
func (s *Step) finish(p, u []float32, n int, update func(u []float32, at int)) {
	if p == nil && u == nil {
		return
	}
	var own [tile]float32
	for at := 0; at < n; at += tile {
		end := min(at+tile, n)
		out := own[:end-at]
		if u != nil {
			out = u[at:end]
		}
		update(out, at)
		if p != nil {
			s.apply(p[at:end], out)
		}
	}
}

// apply decays the parameter's values p and takes the update u from them.
func (s *Step) apply(p, u []float32) {
	u = u[:len(p)]
	if s.decaying {
		for i, v := range p {
			p[i] = v * s.decay
		}
		s.dtype.round(p)
	}
	for i, v := range p {
		p[i] = v - u[i]
	}
	s.dtype.round(p)
}

// part is x[at:end], or nil of nil.
func part(x []float32, at, end int) []float32 {
	if x == nil {
		return nil
	}
	return x[at:end]
}
