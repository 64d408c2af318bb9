package reshard

// measure finds what the rank's shards lose, exactly: nothing where magnitude,
// second moment and codewords stay; from the use of codewords where these are
// renamed; else by making the shard.
func (p *rankPlanner) measure() error {
	for _, i := range p.shards() {
		s := &p.rank.Shards[i]
		var err error
		switch {
		case s.Operation == Coarsen || s.Operation == Relearn:
			s.Error, err = p.measureMade(i)
			s.measured = true
		case s.Operation == Requantize && p.rank.Origin == Learnt:
			s.Error, err = p.measureRenamed(i)
			s.measured = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// measureRenamed is the error of a shard whose blocks keep all but codewords.
func (p *rankPlanner) measureRenamed(i int) (Error, error) {
	use, err := p.usages(i)
	if err != nil {
		return Error{}, err
	}
	x, err := p.open(i)
	if err != nil {
		return Error{}, err
	}
	e := x.squares(use)
	for piece := range use {
		u, c := &use[piece], &x.pieces[piece]
		if c.remap == nil {
			continue
		}
		for k, n := range u.count {
			if n == 0 {
				continue
			}
			d := float64(c.book[k]) - float64(x.target[c.remap[k]])
			e.Momentum += float64(u.weight[k] * d * d)
			e.Update += float64(u.update[k] * d * d)
		}
	}
	return e, nil
}

// squares are the sums of squares of the source.
func (x *Planes) squares(use []usage) Error {
	var e Error
	for piece := range use {
		m, u := use[piece].squares(&x.pieces[piece])
		e.Momentum2 += m
		e.Update2 += u
		e.SecondMoment2 += use[piece].square
	}
	return e
}

// measureMade makes a shard, window by window, and compares it with its source.
func (p *rankPlanner) measureMade(i int) (Error, error) {
	source, err := p.open(i)
	if err != nil {
		return Error{}, err
	}
	made, err := p.open(i)
	if err != nil {
		return Error{}, err
	}
	m := measurer{made: made, source: source}
	err = source.window.each(0, source.shard.Elements, true, m.window)
	return m.lost, err
}

type measurer struct {
	source, made *Planes
	indices      []uint8
	scales       blockCache
	seconds      blockCache
	momenta      []float32
	lost         Error
}

// window compares the elements of the source's window, which begins at from.
func (m *measurer) window(from int64) error {
	w, q := &m.source.window, m.made.shard.Period
	m.indices = grow(m.indices, len(w.indices))
	if err := m.made.Indices(m.indices, from); err != nil {
		return err
	}
	first, last := from/q, (from+int64(len(w.indices))-1)/q
	scales, err := m.scales.get(first, last, m.made.Magnitudes)
	if err != nil {
		return err
	}
	seconds, err := m.seconds.get(first, last, m.second)
	if err != nil {
		return err
	}
	w.byBlock(from, q, func(block int64, s segment) {
		m.segment(s, scales[block-first], seconds[block-first])
	})
	return nil
}

func (m *measurer) second(dst []float32, from int64) error {
	if !m.made.window.blockwise {
		clear(dst)
		return nil
	}
	return m.made.Vmeans(dst, from)
}

func (m *measurer) segment(s segment, scale, second float32) {
	x := m.source
	o := &x.outlook
	h, made := o.root(o.corrected(s.vmean)), o.root(o.corrected(second))
	d := float64(s.vmean) - float64(second)
	e := &m.lost
	e.SecondMoment += float64(float64(s.n) * d * d)
	e.SecondMoment2 += float64(float64(s.n) * float64(s.vmean) * float64(s.vmean))
	m.momenta = grow(m.momenta, s.n)
	x.pieces[s.piece].dequantize(m.momenta, x.window.indices[s.at:s.at+s.n], s.magnitude)
	for i, k := range m.indices[s.at : s.at+s.n] {
		was, is := float64(m.momenta[i]), float64(m.made.target[k]*scale)
		e.Momentum += float64((was - is) * (was - is))
		e.Momentum2 += float64(was * was)
		u, v := float64(o.rate*was/h), float64(o.rate*is/made)
		e.Update += float64((u - v) * (u - v))
		e.Update2 += float64(u * u)
	}
}

// measureRest adds up the error of the planned ranks. Where something is lost, it
// needs the sums of squares of all shards, and reads those that no decision
// needed. A plan of some ranks cannot know whether others lose something.
func (plan *Plan) measureRest(src Source, first, last int) error {
	if last-first == len(plan.Ranks) && !plan.loses() {
		plan.sum()
		return nil
	}
	for r := first; r < last; r++ {
		rank := &plan.Ranks[r]
		for i := range rank.Shards {
			s := &rank.Shards[i]
			if s.measured || len(s.Pieces) == 0 {
				continue
			}
			x, err := open(plan.topology, src, rank, i)
			if err != nil {
				return err
			}
			use, err := x.usages()
			if err != nil {
				return err
			}
			s.Error = x.squares(use)
		}
	}
	plan.sum()
	return nil
}

// loses says whether any shard is not exact.
func (plan *Plan) loses() bool {
	for r := range plan.Ranks {
		for i := range plan.Ranks[r].Shards {
			if e := &plan.Ranks[r].Shards[i].Error; e.Momentum > 0 || e.SecondMoment > 0 {
				return true
			}
		}
	}
	return false
}

// sum adds up the errors of the shards.
func (plan *Plan) sum() {
	plan.Error = Error{}
	for r := range plan.Ranks {
		rank := &plan.Ranks[r]
		rank.Error = Error{}
		for i := range rank.Shards {
			rank.Error.add(rank.Shards[i].Error)
			if r == 0 || plan.topology.Params[i].Sharded {
				plan.Error.add(rank.Shards[i].Error)
			}
		}
	}
}
