package reshard

import "math"

// How a period is judged.
//
// An update is m/h, and what differs from the source's run is mostly h: a target
// block averages the second moment and the coming squared gradients over other
// elements than the source's blocks did. A trial of a period takes the next step
// for both. For the coming squared gradients stand those that the momentum has
// seen, m^2, scaled to the second moments of the shard: which block will have
// large gradients cannot be told, but how uneven they are can. A block that is
// kept takes the source's step exactly and costs nothing. On real checkpoints the
// cost of a period is in proportion to the error that is measured after the step,
// whether blocks are cut or coarsened.

// trials judges the periods of one shard in one pass over its state.
type trials struct {
	planes  *Planes
	outlook *outlook
	// momentum is the mean of m^2 in units of the corrected second moment, and
	// expected the same of the next update.
	momentum, expected float64
	spread             float64 // see [usage.spread]
	renamed            bool    // there will be a new codebook
	energies           []energyCache
	trials             []trial
}

// trial is one period: its costs so far, and the block under way.
type trial struct {
	period int64
	denom  float64 // cost of another h
	quant  float64 // cost of quantizing anew
	block  targetBlock
}

// targetBlock is what a trial gathers of a block.
type targetBlock struct {
	blend
	energy     float64 // sum of m^2
	w, wy, wyy float64 // weights, and their sums with the source's next 1/h and its square
	source     segment // the first
	several    bool    // it spans several source blocks
	peak, at   float64 // the largest magnitude, and the elements that have it
}

// part is a segment with what the source will make of it.
type part struct {
	segment
	energy float64 // sum of m^2
	second float64 // corrected second moment
	next   float64 // 1/h of the source's next update
}

// energyCache holds the mean m^2 of a source block that does not lie within one
// window.
type energyCache struct {
	block int64
	mean  float64
	known bool
}

// judge gives the cost of each period, in squared updates.
func (x *Planes) judge(periods []int64, use []usage, renamed bool, p *Param) ([]float64, error) {
	t := &trials{planes: x, outlook: &x.outlook, renamed: renamed, energies: make([]energyCache, len(x.pieces))}
	t.measure(use, p)
	for _, q := range periods {
		t.trials = append(t.trials, trial{period: q})
	}
	if err := t.run(); err != nil {
		return nil, err
	}
	costs := make([]float64, len(periods))
	scale := x.outlook.rate * x.outlook.rate
	for i := range t.trials {
		costs[i] = scale * (float64(t.expected*t.trials[i].denom) + float64(p.Beta1*p.Beta1*t.trials[i].quant))
		if math.IsNaN(costs[i]) {
			costs[i] = math.Inf(1)
		}
	}
	return costs, nil
}

// measure finds the scales of the shard.
func (t *trials) measure(use []usage, p *Param) {
	var update, elements, lost, count float64
	for i := range use {
		_, u := use[i].squares(&t.planes.pieces[i])
		l, n := use[i].spread(&t.planes.pieces[i])
		update, elements, lost, count = update+u, elements+use[i].elements, lost+l, count+n
	}
	if rate := t.outlook.rate; elements > 0 && rate > 0 {
		t.momentum = update / (rate * rate) / elements
	}
	if count > 0 {
		t.spread = lost / count
	}
	fresh := 1 - p.Beta1
	t.expected = max(t.momentum, fresh*fresh)
}

func (t *trials) run() error {
	w := &t.planes.window
	var sums []float64 // prefix sums of m^2 over the window
	return w.each(0, t.planes.shard.Elements, true, func(int64) error {
		sums = t.prefix(sums)
		for _, s := range w.segments {
			mean, err := t.energy(s, sums)
			if err != nil {
				return err
			}
			second := t.outlook.corrected(s.vmean)
			next := 1 / t.outlook.root(t.next(second, mean))
			for i := range t.trials {
				t.trials[i].add(t, part{segment: s, second: second, next: next}, sums)
			}
		}
		return nil
	})
}

// prefix sums up m^2 over the window.
func (t *trials) prefix(sums []float64) []float64 {
	w := &t.planes.window
	sums = grow(sums, len(w.indices)+1)
	sums[0] = 0
	total := 0.0
	for _, s := range w.segments {
		book := t.planes.pieces[s.piece].book
		square := float64(s.magnitude) * float64(s.magnitude)
		if square == 0 {
			for i := s.at; i < s.at+s.n; i++ {
				sums[i+1] = total
			}
			continue
		}
		for i, k := range w.indices[s.at : s.at+s.n] {
			c := float64(book[k])
			total += float64(square * float64(c*c))
			sums[s.at+i+1] = total
		}
	}
	return sums
}

// energy is the mean m^2 of a segment's whole source block.
func (t *trials) energy(s segment, sums []float64) (float64, error) {
	pc := &t.planes.window.pieces[s.piece]
	if pc.Period == 0 {
		return 0, nil
	}
	if int64(s.n) == pc.Period {
		return (sums[s.at+s.n] - sums[s.at]) / float64(s.n), nil
	}
	c := &t.energies[s.piece]
	if c.known && c.block == s.block {
		return c.mean, nil
	}
	total := 0.0
	var indices [4096]uint8
	from, to := s.block*pc.Period, (s.block+1)*pc.Period
	for at := from; at < to; {
		part := indices[:min(to-at, int64(len(indices)))]
		if err := t.planes.window.source.Indices(part, t.planes.window.param, pc.Source, at); err != nil {
			return 0, err
		}
		for _, k := range part {
			v := float64(t.planes.pieces[s.piece].book[k])
			total += float64(v * v)
		}
		at += int64(len(part))
	}
	mean := total / float64(pc.Period) * float64(s.magnitude) * float64(s.magnitude)
	*c = energyCache{s.block, mean, true}
	return mean, nil
}

// next is the corrected second moment after a step, of a block that has second
// now and whose momentum has the mean square energy.
func (t *trials) next(second, energy float64) float64 {
	gradient := second
	if t.momentum > 0 {
		gradient = energy / t.momentum
	}
	o := t.outlook
	return float64(o.stay*second) + float64((1-o.stay)*gradient)
}

// add takes a segment, block by block of the trial's period.
func (tr *trial) add(t *trials, p part, sums []float64) {
	q := tr.period
	for p.n > 0 {
		rest := p
		rest.n = int(min(int64(p.n), q-tr.block.elements))
		rest.energy = sums[rest.at+rest.n] - sums[rest.at]
		tr.block.add(&rest, t.outlook)
		if tr.block.elements == q {
			tr.close(t)
			tr.block = targetBlock{}
		}
		p.at += rest.n
		p.n -= rest.n
	}
}

func (b *targetBlock) add(p *part, o *outlook) {
	n, a := float64(p.n), float64(p.magnitude)
	switch {
	case b.elements == 0:
		b.source = p.segment
		b.peak, b.at = a, n
	case a > b.peak:
		b.peak, b.at = a, n
	case a == b.peak:
		b.at += n
	}
	b.several = b.several || p.piece != b.source.piece || p.block != b.source.block
	b.blend.add(p.segment, o)
	b.energy += p.energy
	if w := n * p.second; w > 0 {
		b.w += w
		wy := float64(w * p.next)
		b.wy += wy
		b.wyy += float64(wy * p.next)
	}
}

// close adds up the cost of the block.
func (tr *trial) close(t *trials) {
	b, o := &tr.block, t.outlook
	q := float64(tr.period)
	second := o.corrected(b.first)
	if b.uneven {
		second = o.blended(b.v, b.vy)
	}
	x := 1 / o.root(t.next(second, b.energy/q))
	kept := !b.several && t.planes.window.pieces[b.source.piece].Period == tr.period
	if !kept && b.w > 0 {
		tr.denom += max(b.wyy-float64(2*x*b.wy)+float64(x*x*b.w), 0)
	}
	// Period 1 has no error of quantization, and elements that keep their
	// magnitude and codebook none either.
	if tr.period > 1 && b.peak > 0 {
		anew := q
		if !t.renamed {
			anew -= b.at
		}
		tr.quant += float64(x * x * t.spread * b.peak * b.peak * anew)
	}
}
