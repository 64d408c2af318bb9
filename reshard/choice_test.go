package reshard

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestChooseIsOptimal compares the choice with the best of all combinations.
func TestChooseIsOptimal(t *testing.T) {
	rng := newRand(8)
	for n := range 3000 {
		options := randomOptions(rng, 1+rng.IntN(4), 1+rng.IntN(9))
		budget := int64(rng.IntN(300))
		want, least := bruteForce(options, budget)
		var bytes int64
		cost := 0.0
		for _, o := range choose(options, budget, searchWork) {
			bytes += o.bytes
			cost += o.cost
		}
		if want == math.Inf(1) {
			if bytes != least {
				t.Fatalf("case %d: nothing fits, and %d bytes are not the least, %d", n, bytes, least)
			}
			continue
		}
		if bytes > budget || cost > want+1e-12 {
			t.Fatalf("case %d: cost %v with %d bytes, want %v within %d", n, cost, bytes, want, budget)
		}
	}
}

func randomOptions(rng *rand.Rand, shards, options int) [][]option {
	out := make([][]option, shards)
	for i := range out {
		for q := range options {
			out[i] = append(out[i], option{int64(q + 1), 1 + rng.Int64N(100), float64(rng.IntN(50)) / 7})
		}
	}
	return out
}

func bruteForce(options [][]option, budget int64) (cost float64, least int64) {
	if len(options) == 0 {
		if budget < 0 {
			return math.Inf(1), 0
		}
		return 0, 0
	}
	cost, least = math.Inf(1), math.MaxInt64
	for _, o := range options[0] {
		c, l := bruteForce(options[1:], budget-o.bytes)
		cost, least = min(cost, o.cost+c), min(least, o.bytes+l)
	}
	return cost, least
}

// TestChooseOfManyIsNearTheBound bounds what the search leaves on the table when
// there are many shards.
func TestChooseOfManyIsNearTheBound(t *testing.T) {
	rng := newRand(9)
	for range 20 {
		options := randomOptions(rng, 200, 12)
		budget := int64(4000)
		k := newKnapsack(options, budget)
		bound := k.bound(0, k.room)
		var bytes int64
		cost := 0.0
		for _, o := range choose(options, budget, searchWork) {
			bytes += o.bytes
			cost += o.cost
		}
		if bytes > budget || cost > bound*1.01 || cost < bound-1e-9 {
			t.Errorf("cost %v with %d of %d bytes, the bound is %v", cost, bytes, budget, bound)
		}
	}
}

// TestPeriodsAreOptimal plans small ranks under one codebook, and tries every
// combination of periods.
func TestPeriodsAreOptimal(t *testing.T) {
	rng := newRand(10)
	searched := 0
	for range 400 {
		k := &maker{rng: rng, world: 1 + rng.IntN(3), params: 1 + rng.IntN(4), rows: 12, width: 8, codewords: 256,
			oneBook: true, everywhere: true}
		m := k.source()
		plan, err := New(&m.topology, m, Options{World: 1 + rng.IntN(3), Fidelity: Balanced, MaxGrowth: 0.02})
		if err != nil {
			t.Fatal(err)
		}
		for r := range plan.Ranks {
			rank := &plan.Ranks[r]
			if rank.Codebook == nil || rank.Error == (Error{}) {
				continue
			}
			searched++
			options, cost := everyPeriod(t, m, rank)
			if best, _ := bruteForce(options, rank.Budget); cost > best*(1+1e-9) {
				t.Fatalf("the plan costs %v, but %v is possible", cost, best)
			}
		}
	}
	if searched < 50 {
		t.Errorf("only %d ranks needed a choice", searched)
	}
}

// everyPeriod judges every period of every shard of a rank, and what was chosen.
func everyPeriod(t *testing.T, m *memory, rank *Rank) (options [][]option, cost float64) {
	t.Helper()
	p := &rankPlanner{topology: &m.topology, src: m, rank: rank}
	for _, i := range p.shards() {
		s, param := &rank.Shards[i], &m.topology.Params[i]
		use, err := p.usages(i)
		if err != nil {
			t.Fatal(err)
		}
		x, err := p.open(i)
		if err != nil {
			t.Fatal(err)
		}
		periods := divisors(s.Elements)
		costs, err := x.judge(periods, use, false, param)
		if err != nil {
			t.Fatal(err)
		}
		var list []option
		for k, q := range periods {
			list = append(list, option{q, s.Elements + 8*(s.Elements/q), costs[k]})
			if q == s.Period {
				cost += costs[k]
			}
		}
		options = append(options, list)
	}
	return options, cost
}
