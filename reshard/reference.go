package reshard

import "gefenckpt/gefen"

// reference plans what GefenDCPState makes of the dense state when it is loaded:
// periods from the second moment, then one codebook from the momentum in blocks
// of these. It holds the second moment of one shard at a time, as the search for
// a period needs it.
func (p *rankPlanner) reference(rule gefen.PeriodRule) error {
	for _, i := range p.shards() {
		period, err := p.searchPeriod(i, rule)
		if err != nil {
			return err
		}
		p.settleShard(i, layout{period, Relearn})
	}
	var counts gefen.Histogram
	for _, i := range p.shards() {
		x, err := p.open(i)
		if err != nil {
			return err
		}
		if err := x.count(&counts); err != nil {
			return err
		}
	}
	book, _ := gefen.LearnCodebook(&counts)
	p.rank.Codebook, p.rank.Origin = &book, Learnt
	return p.measure()
}

// searchPeriod is the period that Gefen finds in the second moment of a shard.
func (p *rankPlanner) searchPeriod(i int, rule gefen.PeriodRule) (int64, error) {
	x, err := p.open(i)
	if err != nil {
		return 0, err
	}
	param := &p.topology.Params[i]
	second := make([]float64, x.shard.Elements)
	err = x.window.each(0, x.shard.Elements, false, func(from int64) error {
		for _, s := range x.window.segments {
			for k := range second[from+int64(s.at):][:s.n] {
				second[from+int64(s.at+k)] = float64(s.vmean)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	period, err := gefen.FindPeriod(second, param.Name, param.Shape, rule)
	return int64(period), err
}

// count adds the momenta to the histogram that the codebook is learnt from. It
// holds one block, or a window of whole blocks.
func (x *Planes) count(h *gefen.Histogram) error {
	q := x.shard.Period
	size := max(windowElements/q, 1) * q
	for first := int64(0); first < x.shard.Elements; first += size {
		n := min(size, x.shard.Elements-first)
		x.buffer = grow(x.buffer, int(n))
		err := x.window.each(first, first+n, true, func(at int64) error {
			for _, s := range x.window.segments {
				x.pieces[s.piece].dequantize(x.buffer[at-first+int64(s.at):][:s.n], x.window.indices[s.at:s.at+s.n], s.magnitude)
			}
			return nil
		})
		if err != nil {
			return err
		}
		h.Add(x.buffer, int(q))
	}
	return nil
}
