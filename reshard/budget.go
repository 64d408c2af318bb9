package reshard

// budget gives every target rank its bytes: growth more than its elements have in
// the source, and at least one block per shard. So the ranks together keep to the
// growth as well, and blocks that are kept whole always fit, however much more
// some ranks of the source have than others: a world that is cut and joined again
// gets back what it had.
func (t *Topology) budget(r *Rank, growth float64) {
	bytes := 0.0
	for i := range r.Shards {
		s := &r.Shards[i]
		if len(s.Pieces) > 0 {
			least := s.Elements + t.Params[i].blockBytes()
			bytes += max(float64(s.BytesBefore)*(1+growth), float64(least))
		}
	}
	r.Budget = int64(bytes)
}

// size is the bytes and elements of the source's state, over all ranks.
func (t *Topology) size() (bytes, elements int64) {
	for i := range t.Params {
		p := &t.Params[i]
		for r := range p.Shards {
			if period := p.Shards[r].Period; period > 0 {
				n := p.elements(r)
				elements += n
				bytes += n + p.blockBytes()*(n/period)
			}
		}
	}
	return bytes, elements
}
