package reshard

import (
	"slices"
)

// searchWork bounds the search for the best periods of a rank; see [choose].
const searchWork = 1 << 24

// balanced plans a rank whose blocks cannot all keep their values within the
// budget, or whose sources have several codebooks. Where all codewords in use fit
// into one codebook and the blocks into the budget, nothing is lost either.
func (p *rankPlanner) balanced(exact []layout, kept bool) error {
	if !kept {
		merged, err := p.mergeAll()
		if err != nil {
			return err
		}
		if p.settle(exact); merged && p.bytes() <= p.rank.Budget {
			return nil
		}
	}
	layouts, err := p.periods(exact, !kept)
	if err != nil {
		return err
	}
	if !kept {
		if err := p.learn(layouts); err != nil {
			return err
		}
	}
	p.settle(layouts)
	return nil
}

// mergeAll gives the rank a codebook of all codewords in use, if they fit.
func (p *rankPlanner) mergeAll() (bool, error) {
	d, err := newDictionary(p.src, p.sources)
	if err != nil {
		return false, err
	}
	all := d.ends()
	for _, i := range p.shards() {
		words, err := p.words(d, i)
		if err != nil {
			return false, err
		}
		all.union(words)
		if all.size() > len(p.rank.Codebook) {
			return false, nil
		}
	}
	return true, p.rank.merge(p.src, p.sources, d.list(all))
}

// periods chooses the periods of the rank's shards.
func (p *rankPlanner) periods(exact []layout, renamed bool) ([]layout, error) {
	shards := p.shards()
	options := make([][]option, len(shards))
	// Shards whose blocks are all kept cost nothing. If the others can have what
	// suits them best beside these, no shard needs another look.
	lazy := make([]bool, len(shards))
	for k, i := range shards {
		lazy[k] = p.keeps(i, exact[i])
		if err := p.options(&options[k], i, exact[i], renamed, lazy[k]); err != nil {
			return nil, err
		}
	}
	chosen := choose(options, p.rank.Budget, searchWork)
	if slices.Contains(lazy, true) && !unconstrained(chosen, options, p.rank.Budget) {
		for k, i := range shards {
			if lazy[k] {
				if err := p.options(&options[k], i, exact[i], renamed, false); err != nil {
					return nil, err
				}
			}
		}
		chosen = choose(options, p.rank.Budget, searchWork)
	}
	out := make([]layout, len(exact))
	for k, i := range shards {
		switch period := chosen[k].period; {
		case period == 1 && renamed:
			out[i] = layout{1, Expand}
		case period == exact[i].period:
			out[i] = exact[i]
		default:
			out[i] = layout{period: period}
		}
	}
	return out, nil
}

// keeps says whether the layout keeps every block as it is.
func (p *rankPlanner) keeps(i int, l layout) bool {
	return l.as == Join || !slices.ContainsFunc(p.rank.Shards[i].Pieces, func(pc Piece) bool {
		return pc.Period != l.period || !pc.whole()
	})
}

// unconstrained says whether every choice is the cheapest there is, and all are
// within the budget.
func unconstrained(chosen []option, options [][]option, budget int64) bool {
	for k, o := range chosen {
		for _, other := range options[k] {
			if other.cost < o.cost {
				return false
			}
		}
		budget -= o.bytes
	}
	return budget >= 0
}

// options lists the periods of shard i with their bytes and costs: only the one
// that keeps its blocks if keepOnly.
func (p *rankPlanner) options(out *[]option, i int, exact layout, renamed, keepOnly bool) error {
	s, param := &p.rank.Shards[i], &p.topology.Params[i]
	bytes := func(period int64) int64 { return s.Elements + param.blockBytes()*(s.Elements/period) }
	*out = nil
	if keepOnly || exact.as == Join {
		*out = []option{{period: exact.period, bytes: bytes(exact.period)}}
		return nil
	}
	var periods []int64
	affordable, least := p.affordable(i), s.leastPeriod(exact.period)
	for _, q := range divisors(s.Elements) {
		if q == s.Elements || q >= least && bytes(q) <= affordable {
			periods = append(periods, q)
		}
	}
	use, err := p.usages(i)
	if err != nil {
		return err
	}
	x, err := p.open(i)
	if err != nil {
		return err
	}
	costs, err := x.judge(periods, use, renamed, param)
	if err != nil {
		return err
	}
	for k, q := range periods {
		*out = append(*out, option{q, bytes(q), costs[k]})
	}
	return nil
}

// largeShard is from how many elements on a shard's shortest periods are not
// tried: there are many blocks to look at, and none has turned out to be good.
const largeShard = 1 << 16

// leastPeriod is the shortest period to try: one that cuts further than the exact
// one costs more bytes, and takes the shard further from the source's steps.
func (s *Shard) leastPeriod(exact int64) int64 {
	if s.Elements < largeShard {
		return 1
	}
	shortest := s.Elements
	for _, pc := range s.Pieces {
		if pc.Period > 0 {
			shortest = min(shortest, pc.Period)
		}
	}
	return max(exact, shortest/64)
}

// affordable is what shard i may take if every other has one block.
func (p *rankPlanner) affordable(i int) int64 {
	left := p.rank.Budget
	for _, j := range p.shards() {
		if j != i {
			left -= p.rank.Shards[j].Elements + p.topology.Params[j].blockBytes()
		}
	}
	return left
}

// learn gives the rank the best codebook for the blocks that it will have.
func (p *rankPlanner) learn(layouts []layout) error {
	var all points
	for _, i := range p.shards() {
		if layouts[i].as == Expand {
			continue
		}
		p.settleShard(i, layouts[i])
		x, err := p.open(i)
		if err != nil {
			return err
		}
		if p.rank.Shards[i].Operation == Coarsen {
			err = x.addValues(&all)
		} else {
			err = p.addCodewords(&all, x, i)
		}
		if err != nil {
			return err
		}
	}
	return p.rank.learn(p.src, p.sources, &all)
}

// addCodewords adds the points of blocks that keep their magnitude.
func (p *rankPlanner) addCodewords(all *points, x *Planes, i int) error {
	use, err := p.usages(i)
	if err != nil {
		return err
	}
	for piece := range use {
		for k, n := range use[piece].count {
			if n > 0 {
				all.codewords.add(x.pieces[piece].book[k], use[piece].weight[k])
			}
		}
	}
	return nil
}

// addValues adds the points of blocks that get a new magnitude.
func (x *Planes) addValues(all *points) error {
	for at := int64(0); at < x.shard.Elements; at += windowElements {
		err := x.scaled(at, min(x.shard.Elements-at, windowElements), func(s segment, scale float32) {
			if scale == 0 {
				return
			}
			weight := float64(scale) * float64(scale)
			indices, c := x.window.indices[s.at:s.at+s.n], &x.pieces[s.piece]
			if same(scale, s.magnitude) {
				for _, k := range indices {
					all.codewords.add(c.book[k], weight)
				}
				return
			}
			for _, v := range x.values(s, scale) {
				all.values.add(v, weight)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
