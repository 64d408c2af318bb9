package reshard

import (
	"math/rand/v2"
	"testing"
)

// TestExpansionIsOptimal compares the choice for few shards with all subsets, the
// search for many shards with it, and both with the lower bound.
func TestExpansionIsOptimal(t *testing.T) {
	rng := newRand(11)
	found, total := 0, 0
	for range 300 {
		e := randomExpansion(rng, 1+rng.IntN(enumerable))
		want := leastCost(e)
		if got := e.cost(e.best()); got != want {
			t.Fatalf("best costs %d, want %d", got, want)
		}
		searched := e.greedy()
		e.improve(searched)
		cost := e.cost(searched)
		if !e.fits(searched) || cost < want {
			t.Fatalf("the search costs %d, fits %v; the least is %d", cost, e.fits(searched), want)
		}
		if bound := e.bound(); bound > want {
			t.Fatalf("lower bound %d, but %d is possible", bound, want)
		}
		total++
		if cost == want {
			found++
		}
	}
	if found < total*8/10 {
		t.Errorf("the search found the optimum in %d of %d cases", found, total)
	}
}

func randomExpansion(rng *rand.Rand, shards int) *expansion {
	const universe = 60
	e := &expansion{room: 24, base: make(set, 1), universe: universe}
	e.base.put(0)
	e.base.put(1)
	for range shards {
		words := make(set, 1)
		first := rng.IntN(3) * 20 // of one of three codebooks
		for range 1 + rng.IntN(14) {
			words.put(first + rng.IntN(20))
		}
		e.items = append(e.items, expandable{words, 1 + rng.Int64N(1000)})
	}
	return e
}

func leastCost(e *expansion) int64 {
	least := int64(-1)
	for mask := range 1 << len(e.items) {
		expanded := make([]bool, len(e.items))
		for k := range expanded {
			expanded[k] = mask>>k&1 == 1
		}
		if cost := e.cost(expanded); e.fits(expanded) && (least < 0 || cost < least) {
			least = cost
		}
	}
	return least
}
