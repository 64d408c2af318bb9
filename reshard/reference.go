package reshard

import (
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// reference plans what GefenDCPState makes of the dense state when it is loaded:
// periods from the second moment, then one codebook from the momentum in blocks
// of these. It holds the second moments of the blocks of one shard at a time, as the
// search for a period needs them.
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
	var values []float32
	var lengths []int
	param := &p.topology.Params[i]
	err = x.window.each(0, x.shard.Elements, false, func(int64) error {
		for _, s := range x.window.segments {
			if last := len(values) - 1; last >= 0 && same(values[last], s.vmean) {
				lengths[last] += s.n
				continue
			}
			values, lengths = append(values, s.vmean), append(lengths, s.n)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	period, err := gefen.FindPeriodOfRuns(values, lengths, param.Name, param.Shape, rule)
	if err != nil {
		return 0, fault.New(fault.Corrupt, "second moment: %w", err)
	}
	return int64(period), nil
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
