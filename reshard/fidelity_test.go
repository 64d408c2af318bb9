package reshard

import (
	"math"
	"testing"

	"gefenckpt/gefen"
)

// TestLosslessKeepsEveryBit makes random sources, any tiling, on random worlds
// and compares every momentum and second moment.
func TestLosslessKeepsEveryBit(t *testing.T) {
	rng := newRand(2)
	origins := map[Origin]int{}
	operations := map[Operation]int{}
	for n := range 400 {
		k := &maker{rng: rng, world: 1 + rng.IntN(4), params: 1 + rng.IntN(5), rows: 32, width: 24,
			codewords: []int{4, 24, 90, 256}[rng.IntN(4)], oneBook: rng.IntN(4) == 0, chunked: rng.IntN(2) == 0}
		m := k.source()
		plan, err := New(&m.topology, m, Options{World: 1 + rng.IntN(5), Fidelity: Lossless})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Error != (Error{}) {
			t.Fatalf("case %d: a lossless plan expects the error %+v", n, plan.Error)
		}
		if plan.LowerBound > plan.BytesAfter {
			t.Fatalf("case %d: %d bytes are below the lower bound %d", n, plan.BytesAfter, plan.LowerBound)
		}
		target := made(t, plan, m, rng)
		for r := range plan.Ranks {
			origins[plan.Ranks[r].Origin]++
			for i := range plan.Ranks[r].Shards {
				operations[plan.Ranks[r].Shards[i].Operation]++
			}
		}
		for i := range m.topology.Params {
			compareBits(t, m, target, plan, i)
		}
	}
	for _, o := range []Origin{Kept, Merged} {
		if origins[o] == 0 {
			t.Errorf("no rank's codebook was %s", o)
		}
	}
	for _, o := range []Operation{Keep, Split, Requantize, Expand} {
		if operations[o] == 0 {
			t.Errorf("no shard was subject to %s", o)
		}
	}
}

func compareBits(t *testing.T, source, target *memory, plan *Plan, i int) {
	t.Helper()
	p := &source.topology.Params[i]
	compare := func(m, v, wantM, wantV []float32) {
		t.Helper()
		for e := range wantM {
			if !same(m[e], wantM[e]) || !same(v[e], wantV[e]) {
				t.Fatalf("%s element %d: momentum %v and second moment %v, want %v and %v", p.Name, e, m[e], v[e], wantM[e], wantV[e])
			}
		}
	}
	if p.Sharded {
		m, v := target.whole(i)
		wantM, wantV := source.whole(i)
		compare(m, v, wantM, wantV)
		return
	}
	for r := range plan.Ranks {
		if len(plan.Ranks[r].Shards[i].Pieces) == 0 {
			continue
		}
		m, v := target.shard(i, r)
		wantM, wantV := source.shard(i, plan.Ranks[r].Shards[i].Pieces[0].Source)
		compare(m, v, wantM, wantV)
	}
}

// TestBalancedPredictsItsError compares the plan's error with that of what it
// makes, and its bytes with the budget.
func TestBalancedPredictsItsError(t *testing.T) {
	rng := newRand(3)
	operations := map[Operation]int{}
	for n := range 100 {
		k := &maker{rng: rng, world: 1 + rng.IntN(4), params: 1 + rng.IntN(4), rows: 40, width: 24,
			codewords: []int{16, 256}[rng.IntN(2)], oneBook: rng.IntN(3) == 0, chunked: rng.IntN(2) == 0}
		m := k.source()
		plan, err := New(&m.topology, m, Options{World: 1 + rng.IntN(5), Fidelity: Balanced, MaxGrowth: []float64{0, 0.05, 5}[n%3]})
		if err != nil {
			t.Fatal(err)
		}
		target := made(t, plan, m, rng)
		var got Error
		for i := range m.topology.Params {
			for r := range plan.Ranks {
				s := &plan.Ranks[r].Shards[i]
				operations[s.Operation]++
				if r == 0 || m.topology.Params[i].Sharded {
					got.add(measured(m, target, plan, r, i))
				}
			}
		}
		near(t, n, "momentum", got.MomentumRelL2(), plan.Error.MomentumRelL2())
		near(t, n, "second moment", got.SecondMomentRelL2(), plan.Error.SecondMomentRelL2())
		near(t, n, "update", got.UpdateRelL2(), plan.Error.UpdateRelL2())
		for r := range plan.Ranks {
			if rank := &plan.Ranks[r]; rank.Bytes > rank.Budget {
				t.Errorf("case %d: rank %d has %d bytes, more than its budget of %d", n, r, rank.Bytes, rank.Budget)
			}
			if rank := &plan.Ranks[r]; rank.Codebook != nil {
				if err := rank.Codebook.Validate(); err != nil {
					t.Errorf("case %d: rank %d: %v", n, r, err)
				}
			}
		}
	}
	for o := Keep; o < Relearn; o++ {
		if operations[o] == 0 && o != Join {
			t.Errorf("no shard was subject to %s", o)
		}
	}
}

func near(t *testing.T, n int, what string, got, predicted float64) {
	t.Helper()
	if math.Abs(got-predicted) > 1e-3*got+1e-9 {
		t.Errorf("case %d: the %s error is %.6g, predicted %.6g", n, what, got, predicted)
	}
}

// measured is the error of a target shard, element by element.
func measured(source, target *memory, plan *Plan, r, i int) Error {
	var e Error
	s := &plan.Ranks[r].Shards[i]
	if len(s.Pieces) == 0 {
		return e
	}
	o := newOutlook(&source.topology.Params[i], s)
	m, v := target.shard(i, r)
	for _, pc := range s.Pieces {
		wantM, wantV := source.shard(i, pc.Source)
		for k := range pc.Elements {
			was, is := float64(wantM[pc.From+k]), float64(m[pc.At+k])
			before, after := float64(wantV[pc.From+k]), float64(v[pc.At+k])
			u := o.rate * was / o.root(before/o.bc2)
			d := u - o.rate*is/o.root(after/o.bc2)
			e.add(Error{(was - is) * (was - is), was * was, (before - after) * (before - after), before * before, d * d, u * u})
		}
	}
	return e
}

// TestBlendedIsTheBest compares the second moment of blocks that span several
// with a numeric search for the one that differs least in the update.
func TestBlendedIsTheBest(t *testing.T) {
	rng := newRand(4)
	for range 200 {
		o := outlook{bc2: 0.3, eps: 1e-8}
		var w, h []float64
		var v, vy float64
		for range 1 + rng.IntN(6) {
			second := math.Exp(3 * rng.NormFloat64())
			n := float64(1 + rng.IntN(50))
			w, h = append(w, n*second), append(h, o.root(second))
			v, vy = v+n*second, vy+n*second/o.root(second)
		}
		cost := func(second float64) float64 {
			sum := 0.0
			for i := range w {
				d := 1/o.root(second) - 1/h[i]
				sum += w[i] * d * d
			}
			return sum
		}
		lo, hi := 1e-12, 1e12
		for range 300 { // ternary search in the exponent
			a, b := math.Pow(lo, 2./3)*math.Pow(hi, 1./3), math.Pow(lo, 1./3)*math.Pow(hi, 2./3)
			if cost(a) < cost(b) {
				hi = b
			} else {
				lo = a
			}
		}
		if got := o.blended(v, vy); math.Abs(got/lo-1) > 1e-5 {
			t.Fatalf("blended to %v, but %v is best", got, lo)
		}
	}
}

// TestReferenceIsReblock compares the reference plan with what the optimizer
// makes of the dense moments of each shard.
func TestReferenceIsReblock(t *testing.T) {
	rng := newRand(5)
	for range 40 {
		k := &maker{rng: rng, world: 1 + rng.IntN(3), params: 3, rows: 40, width: 40, codewords: 256, everywhere: true}
		m := k.source()
		rule := gefen.PeriodRule{Force1D: rng.IntN(2) == 0}
		plan, err := New(&m.topology, m, Options{World: 1 + rng.IntN(4), Fidelity: Reference, Periods: rule})
		if err != nil {
			t.Fatal(err)
		}
		target := made(t, plan, m, rng)
		for r := range plan.Ranks {
			compareReblock(t, m, target, plan, r, rule)
		}
	}
}

func compareReblock(t *testing.T, m, target *memory, plan *Plan, r int, rule gefen.PeriodRule) {
	t.Helper()
	params := make([]gefen.Dense, len(m.topology.Params))
	for i := range params {
		p, s := &m.topology.Params[i], &plan.Ranks[r].Shards[i]
		params[i] = gefen.Dense{Name: p.Name, Shape: p.Shape}
		if s.Elements > 0 {
			momentum, second := m.whole(i)
			from := s.Row * p.RowElements()
			params[i].Momentum, params[i].Second = momentum[from:from+s.Elements], second[from:from+s.Elements]
		}
	}
	book, blocks, err := gefen.Relearn(params, rule, 1)
	if err != nil {
		t.Fatal(err)
	}
	if book == nil {
		return
	}
	if !identical(book, plan.Ranks[r].Codebook) {
		t.Fatal("the codebook differs")
	}
	for i, want := range blocks {
		if period := plan.Ranks[r].Shards[i].Period; period != int64(want.Period) {
			t.Fatalf("period %d, want %d", period, want.Period)
		}
		if want.Period == 0 {
			continue
		}
		got := &target.states[i][r]
		for b := range want.Magnitude {
			if !same(want.Magnitude[b], got.magnitudes[b]) || !same(want.Vmean[b], got.vmeans[b]) {
				t.Fatalf("block %d: %v and %v, want %v and %v", b, got.magnitudes[b], got.vmeans[b], want.Magnitude[b], want.Vmean[b])
			}
		}
		if string(want.Index) != string(got.index) {
			t.Fatal("indices differ")
		}
	}
}
