package reshard

import (
	"cmp"
	"math"
	"slices"
)

// lossless plans a rank whose sources have several codebooks, without any loss:
// the codewords in use by some shards fit into one codebook, and the others fall
// to period 1, where -1 and +1 do. It looks for the fewest bytes.
func (p *rankPlanner) lossless(exact []layout) error {
	d, err := newDictionary(p.src, p.sources)
	if err != nil {
		return err
	}
	shards := p.shards()
	e := &expansion{room: len(p.rank.Codebook), base: d.ends(), universe: len(d.words)}
	for _, i := range shards {
		words, err := p.words(d, i)
		if err != nil {
			return err
		}
		n := p.rank.Shards[i].Elements
		blocks := n / exact[i].period
		e.items = append(e.items, expandable{words, p.topology.Params[i].blockBytes() * (n - blocks)})
	}
	expanded := e.best()
	p.gap = e.cost(expanded) - e.bound()
	all := d.ends()
	layouts := slices.Clone(exact)
	for k, i := range shards {
		if expanded[k] {
			layouts[i] = layout{1, Expand}
		} else {
			all.union(e.items[k].words)
		}
	}
	if err := p.rank.merge(p.src, p.sources, d.list(all)); err != nil {
		return err
	}
	p.settle(layouts)
	return nil
}

// expansion is the choice of shards that fall to period 1: the cheapest that
// leaves no more codewords in use than there is room for.
type expansion struct {
	items    []expandable
	base     set // codewords that are always there
	room     int
	universe int
}

// expandable is a shard: its codewords, and the bytes that period 1 takes more.
type expandable struct {
	words set
	cost  int64
}

// enumerable is up to how many shards every choice is tried.
const enumerable = 12

// best is the choice: by enumeration for few shards, else by greedy choice and
// local search.
func (e *expansion) best() []bool {
	if len(e.items) <= enumerable {
		return e.enumerate()
	}
	expanded := e.greedy()
	e.improve(expanded)
	return expanded
}

func (e *expansion) enumerate() []bool {
	expanded, best := make([]bool, len(e.items)), make([]bool, len(e.items))
	least := int64(math.MaxInt64)
	var try func(k int, used set, cost int64)
	try = func(k int, used set, cost int64) {
		if cost >= least || used.size() > e.room {
			return
		}
		if k == len(e.items) {
			least = cost
			copy(best, expanded)
			return
		}
		with := slices.Clone(used)
		with.union(e.items[k].words)
		try(k+1, with, cost)
		expanded[k] = true
		try(k+1, used, cost+e.items[k].cost)
		expanded[k] = false
	}
	try(0, e.base, 0)
	return best
}

// greedy takes in shards, from none, by what they save per codeword that they
// add, as long as one fits.
func (e *expansion) greedy() []bool {
	expanded := make([]bool, len(e.items))
	for k := range expanded {
		expanded[k] = true
	}
	used := slices.Clone(e.base)
	for {
		best, worth := -1, -1.0
		for k, item := range e.items {
			if !expanded[k] {
				continue
			}
			with := slices.Clone(used)
			with.union(item.words)
			added := with.size() - used.size()
			if with.size() > e.room {
				continue
			}
			if w := float64(item.cost) / float64(max(added, 1)); added == 0 || w > worth {
				best, worth = k, w
				if added == 0 {
					break
				}
			}
		}
		if best < 0 {
			return expanded
		}
		expanded[best] = false
		used.union(e.items[best].words)
	}
}

// improve takes in one shard and lets others fall for it, the cheapest first, as
// long as that saves bytes.
func (e *expansion) improve(expanded []bool) {
	for changed := true; changed; {
		changed = false
		for k := range expanded {
			if !expanded[k] {
				continue
			}
			trial := slices.Clone(expanded)
			trial[k] = false
			e.makeRoom(trial, k)
			if e.fits(trial) && e.cost(trial) < e.cost(expanded) {
				copy(expanded, trial)
				changed = true
			}
		}
	}
}

// makeRoom lets shards fall, other than keep, until the rest fits; then takes in
// again what still fits.
func (e *expansion) makeRoom(expanded []bool, keep int) {
	order := make([]int, 0, len(e.items))
	for k := range e.items {
		if k != keep && !expanded[k] {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(e.items[a].cost, e.items[b].cost) })
	for _, k := range order {
		if e.fits(expanded) {
			break
		}
		expanded[k] = true
	}
	slices.Reverse(order)
	for _, k := range order {
		if expanded[k] {
			expanded[k] = false
			expanded[k] = !e.fits(expanded)
		}
	}
}

func (e *expansion) fits(expanded []bool) bool {
	used := slices.Clone(e.base)
	for k, item := range e.items {
		if !expanded[k] {
			used.union(item.words)
		}
	}
	return used.size() <= e.room
}

func (e *expansion) cost(expanded []bool) int64 {
	total := int64(0)
	for k, item := range e.items {
		if expanded[k] {
			total += item.cost
		}
	}
	return total
}

// bound is what no choice can undercut. Codewords in use beyond the room must go,
// and one goes only if every shard that uses it falls. Spread the cost of each
// shard evenly over its codewords: the codewords that go are paid for by shards
// that fall, so the cheapest that are too many are the least that is paid.
func (e *expansion) bound() int64 {
	share := make([]float64, e.universe)
	used := slices.Clone(e.base)
	for _, item := range e.items {
		used.union(item.words)
		n := item.words.size()
		for i := range share {
			if item.words.has(i) {
				share[i] += float64(item.cost) / float64(n)
			}
		}
	}
	var paid []float64
	for i := range share {
		if used.has(i) && !e.base.has(i) {
			paid = append(paid, share[i])
		}
	}
	slices.Sort(paid)
	total := 0.0
	for _, s := range paid[:max(used.size()-e.room, 0)] {
		total += s
	}
	return int64(total)
}
