package reshard

import (
	"cmp"
	"slices"
)

// budget gives every target rank its bytes: together at most growth more than the
// source has for the same elements, at one rate per element. A rank whose rows
// have more than that in the source may keep as much, so that blocks which are
// kept whole always fit, and the others' rate is lowered by what it takes. One
// block per shard is always within the budget.
func (t *Topology) budget(ranks []Rank, growth float64) {
	before, held := t.size()
	if held == 0 {
		return
	}
	own, elements := make([]float64, len(ranks)), make([]float64, len(ranks))
	order := make([]int, len(ranks))
	total := 0.0
	for r := range ranks {
		order[r] = r
		for i := range ranks[r].Shards {
			s := &ranks[r].Shards[i]
			if len(s.Pieces) > 0 {
				least := s.Elements + t.Params[i].blockBytes()
				own[r] += float64(max(s.BytesBefore, least))
				elements[r] += float64(s.Elements)
			}
		}
		total += elements[r]
	}
	left := float64(before) / float64(held) * (1 + growth) * total
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(own[b]*max(elements[a], 1), own[a]*max(elements[b], 1))
	})
	for _, r := range order {
		share := 0.0
		if total > 0 {
			share = left / total * elements[r]
		}
		bytes := max(own[r], share)
		ranks[r].Budget = int64(bytes)
		left, total = left-bytes, total-elements[r]
	}
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
