package reshard

import (
	"cmp"
	"math"
	"slices"
)

// option is one way to plan a shard.
type option struct {
	period int64
	bytes  int64
	cost   float64 // not negative
}

// choose takes one option per shard, so that the bytes are within the budget and
// the sum of costs is least; where nothing is within the budget, the fewest bytes.
// It is a multiple-choice knapsack: branch and bound, with the bound of the
// relaxation in which options may be mixed. work bounds the steps taken; beyond
// it the best found so far is the answer.
func choose(options [][]option, budget int64, work int) []option {
	k := newKnapsack(options, budget)
	k.greedy()
	k.work = work
	k.search(0, k.room, 0)
	out := make([]option, len(options))
	for i, pick := range k.best {
		out[i] = k.shards[i].options[pick]
	}
	return out
}

type knapsack struct {
	shards []candidates
	room   int64 // bytes above the smallest options
	order  []int // shards in the order in which they are branched on
	steps  []hullStep
	depth  []int // by shard: position in order

	pick, best []int
	bestCost   float64
	work       int
}

// candidates are a shard's options that no other beats in both bytes and cost, by
// bytes: each costs less than the one before.
type candidates struct{ options []option }

// hullStep is a step along the lower convex hull of a shard's options.
type hullStep struct {
	shard int
	bytes int64
	gain  float64
}

func newKnapsack(options [][]option, budget int64) *knapsack {
	k := &knapsack{room: budget, bestCost: math.Inf(1)}
	for i, list := range options {
		c := pareto(list)
		k.shards = append(k.shards, candidates{c})
		k.room -= c[0].bytes
		k.order = append(k.order, i)
		at := 0
		for at < len(c)-1 {
			next := steepest(c, at)
			k.steps = append(k.steps, hullStep{i, c[next].bytes - c[at].bytes, c[at].cost - c[next].cost})
			at = next
		}
	}
	k.room = max(k.room, 0)
	slices.SortStableFunc(k.steps, func(a, b hullStep) int {
		return cmp.Compare(b.gain/float64(b.bytes), a.gain/float64(a.bytes))
	})
	slices.SortStableFunc(k.order, func(a, b int) int { return cmp.Compare(k.span(b), k.span(a)) })
	k.depth = make([]int, len(options))
	for d, i := range k.order {
		k.depth[i] = d
	}
	k.pick, k.best = make([]int, len(options)), make([]int, len(options))
	return k
}

// span is how much a shard's choice matters.
func (k *knapsack) span(i int) float64 {
	c := k.shards[i].options
	return c[0].cost - c[len(c)-1].cost
}

func pareto(options []option) []option {
	sorted := slices.Clone(options)
	slices.SortStableFunc(sorted, func(a, b option) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.cost, b.cost))
	})
	out := sorted[:1]
	for _, o := range sorted[1:] {
		if o.cost < out[len(out)-1].cost {
			out = append(out, o)
		}
	}
	return out
}

// steepest is the option after at that gains the most per byte.
func steepest(c []option, at int) int {
	best, slope := at+1, -1.0
	for i := at + 1; i < len(c); i++ {
		if s := (c[at].cost - c[i].cost) / float64(c[i].bytes-c[at].bytes); s >= slope {
			best, slope = i, s
		}
	}
	return best
}

// greedy finds a first answer: the steps of the hulls, best first, as far as they
// fit, then single changes as long as one of them helps.
func (k *knapsack) greedy() {
	room := k.room
	for _, s := range k.steps {
		c, at := k.shards[s.shard].options, k.best[s.shard]
		// A shard's steps come in their order; one that does not fit ends them.
		if next := k.reach(c, at, s); next > at && s.bytes <= room {
			k.best[s.shard] = next
			room -= s.bytes
		}
	}
	for {
		shard, option, gain := -1, 0, 0.0
		for i := range k.shards {
			c, at := k.shards[i].options, k.best[i]
			for j := at + 1; j < len(c) && c[j].bytes-c[at].bytes <= room; j++ {
				if g := c[at].cost - c[j].cost; g > gain {
					shard, option, gain = i, j, g
				}
			}
		}
		if shard < 0 {
			break
		}
		c := k.shards[shard].options
		room -= c[option].bytes - c[k.best[shard]].bytes
		k.best[shard] = option
	}
	k.bestCost = 0
	for i, pick := range k.best {
		k.bestCost += k.shards[i].options[pick].cost
	}
}

// reach is the option that a step leads to from at, or at if it does not begin
// there.
func (k *knapsack) reach(c []option, at int, s hullStep) int {
	for i := at + 1; i < len(c); i++ {
		if c[i].bytes-c[at].bytes == s.bytes && c[at].cost-c[i].cost == s.gain {
			return i
		}
	}
	return at
}

// search branches on the shards from depth on, with room bytes left above their
// smallest options and cost spent on the shards before.
func (k *knapsack) search(depth int, room int64, cost float64) {
	if depth == len(k.order) {
		if cost < k.bestCost {
			k.bestCost = cost
			copy(k.best, k.pick)
		}
		return
	}
	if k.work -= len(k.steps); k.work < 0 || cost+k.bound(depth, room) >= k.bestCost {
		return
	}
	i := k.order[depth]
	c := k.shards[i].options
	for j := len(c) - 1; j >= 0; j-- {
		if extra := c[j].bytes - c[0].bytes; extra <= room {
			k.pick[i] = j
			k.search(depth+1, room-extra, cost+c[j].cost)
		}
	}
}

// bound is what the shards from depth on cost at least.
func (k *knapsack) bound(depth int, room int64) float64 {
	cost := 0.0
	for _, i := range k.order[depth:] {
		cost += k.shards[i].options[0].cost
	}
	for _, s := range k.steps {
		if k.depth[s.shard] < depth {
			continue
		}
		if s.bytes > room {
			return cost - float64(s.gain*float64(room)/float64(s.bytes))
		}
		room -= s.bytes
		cost -= s.gain
	}
	return cost
}
