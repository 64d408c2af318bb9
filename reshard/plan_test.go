package reshard

import (
	"errors"
	"math"
	"testing"

	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// TestCutAndJoinedAgain takes sources to k times their ranks and back.
func TestCutAndJoinedAgain(t *testing.T) {
	rng := newRand(12)
	joined, balanced := 0, 0
	for n := range 250 {
		k := &maker{rng: rng, world: 1 + rng.IntN(3), params: 1 + rng.IntN(3), rows: 1, width: 12, codewords: 256, everywhere: true, chunked: true}
		times := 2 + rng.IntN(2)
		m := evenSource(k, times)
		fidelity := []Fidelity{Lossless, Balanced}[n%2]
		there := planned(t, m, Options{World: k.world * times, Fidelity: fidelity, MaxGrowth: 0.05})
		if there.Error != (Error{}) {
			continue // the budget did not allow cuts
		}
		middle := made(t, there, m, nil)
		back := planned(t, middle, Options{World: k.world, Fidelity: fidelity, MaxGrowth: 0.05})
		target := made(t, back, middle, nil)
		for r := range k.world {
			if !identical(m.books[r], target.books[r]) {
				t.Fatalf("case %d: rank %d has another codebook", n, r)
			}
			for i := range m.topology.Params {
				if back.Ranks[r].Shards[i].Operation == Join {
					joined++
				}
				compareStates(t, n, &m.states[i][r], &target.states[i][r])
			}
		}
		if fidelity == Balanced {
			balanced++
		}
	}
	if joined < 20 || balanced < 20 {
		t.Errorf("only %d shards were joined, and %d cases balanced", joined, balanced)
	}
}

// evenSource is a source whose rows divide by world and times.
func evenSource(k *maker, times int) *memory {
	m := &memory{topology: Topology{World: k.world}}
	for range k.world {
		m.books = append(m.books, k.codebook())
	}
	for range k.params {
		p := Param{Name: "p", LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Sharded: true, Blockwise: true}
		p.Shape = []int64{int64(k.world*times) * (1 + k.rng.Int64N(6)), 1 + k.rng.Int64N(k.width)}
		var states []state
		for r := range k.world {
			from, to := Chunk(p.Rows(), k.world, r)
			all := divisors((to - from) * p.RowElements())
			s := SourceShard{Row: from, Rows: to - from, Step: 4, VmeanStep: 4, Period: all[k.rng.IntN(len(all))]}
			p.Shards = append(p.Shards, s)
			states = append(states, k.state((to-from)*p.RowElements(), s.Period))
		}
		m.topology.Params = append(m.topology.Params, p)
		m.states = append(m.states, states)
	}
	return m
}

func planned(t *testing.T, m *memory, o Options) *Plan {
	t.Helper()
	plan, err := New(&m.topology, m, o)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func compareStates(t *testing.T, n int, want, got *state) {
	t.Helper()
	zeros := true
	for _, a := range want.magnitudes {
		zeros = zeros && a == 0
	}
	if zeros {
		return // blocks of nothing but zeros cannot show where they were cut
	}
	if got.period != want.period || string(got.index) != string(want.index) {
		t.Fatalf("case %d: period %d, want %d, or other indices", n, got.period, want.period)
	}
	for b := range want.magnitudes {
		if !same(got.magnitudes[b], want.magnitudes[b]) || !same(got.vmeans[b], want.vmeans[b]) {
			t.Fatalf("case %d: block %d differs", n, b)
		}
	}
}

// unread is a source of which nothing but codebooks may be read.
type unread struct{ Source }

var errRead = errors.New("the state was read")

func (unread) Indices([]uint8, int, int, int64) error      { return errRead }
func (unread) Magnitudes([]float32, int, int, int64) error { return errRead }
func (unread) Vmeans([]float32, int, int, int64) error     { return errRead }

// TestCutsNeedNoState plans large shards that are kept or cut, and one world on
// itself.
func TestCutsNeedNoState(t *testing.T) {
	k := &maker{rng: newRand(13), codewords: 256}
	for _, c := range []struct{ world, to int }{{2, 4}, {3, 3}, {1, 8}} {
		m := &memory{topology: Topology{World: c.world}}
		for range c.world {
			m.books = append(m.books, k.codebook())
		}
		for i := range 50 {
			p := Param{Name: "p", Shape: []int64{3 << 20, 1 << 12}, LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Sharded: true, Blockwise: true}
			for r := range c.world {
				from, to := Chunk(p.Rows(), c.world, r)
				period := []int64{2048, 64, (to - from) << 12}[(i+r)%3]
				p.Shards = append(p.Shards, SourceShard{Row: from, Rows: to - from, Period: period, Step: 1, VmeanStep: 1})
			}
			m.topology.Params = append(m.topology.Params, p)
		}
		for _, f := range []Fidelity{Lossless, Balanced} {
			plan, err := New(&m.topology, unread{m}, Options{World: c.to, Fidelity: f, MaxGrowth: 0.05})
			if err != nil {
				t.Errorf("%d to %d, %s: %v", c.world, c.to, f, err)
			} else if plan.Error != (Error{}) {
				t.Errorf("%d to %d, %s: expects %+v", c.world, c.to, f, plan.Error)
			}
		}
	}
}

// TestSameWorldIsIdentity reshards uneven ranks to as many: every byte stays,
// however much more one rank has than the others.
func TestSameWorldIsIdentity(t *testing.T) {
	rng := newRand(14)
	for range 200 {
		k := &maker{rng: rng, world: 1 + rng.IntN(4), params: 3, rows: 20, width: 10, codewords: 256, everywhere: true, chunked: true}
		m := k.source()
		for _, f := range []Fidelity{Lossless, Balanced} {
			plan := planned(t, m, Options{World: k.world, Fidelity: f})
			for r := range plan.Ranks {
				for i := range plan.Ranks[r].Shards {
					s := &plan.Ranks[r].Shards[i]
					if s.Operation > Keep || len(s.Pieces) > 0 && !plan.Ranks[r].Verbatim(&s.Pieces[0]) {
						t.Fatalf("%s: rank %d: %v", f, r, s.Operation)
					}
				}
			}
			if plan.BytesAfter != plan.BytesBefore {
				t.Fatalf("%s: %d bytes, want %d", f, plan.BytesAfter, plan.BytesBefore)
			}
		}
	}
}

// TestBudget checks that the ranks' budgets add up to the growth that is allowed,
// but for shards that need more to have one block.
func TestBudget(t *testing.T) {
	rng := newRand(15)
	for range 300 {
		k := &maker{rng: rng, world: 1 + rng.IntN(4), params: 3, rows: 30, width: 30, codewords: 256, everywhere: true, chunked: true}
		m := k.source()
		ranks, _ := m.topology.layout(1 + rng.IntN(5))
		before, _ := m.topology.size()
		var sum, more float64
		for r := range ranks {
			m.topology.budget(&ranks[r], 0.05)
			sum += float64(ranks[r].Budget)
			for i := range ranks[r].Shards {
				if s := &ranks[r].Shards[i]; s.Elements > 0 {
					more += max(0, float64(s.Elements+8)-1.05*float64(s.BytesBefore))
				}
			}
		}
		slack := float64(len(ranks) * len(m.topology.Params)) // of rounding
		if want := 1.05*float64(before) + more; sum > want+slack || sum < want-slack {
			t.Fatalf("the budgets add up to %v bytes, want %v of %d", sum, want, before)
		}
	}
}

// TestWithoutSecondMoments plans states that have no vmean, as GefenMuon's.
func TestWithoutSecondMoments(t *testing.T) {
	rng := newRand(16)
	for range 60 {
		k := &maker{rng: rng, world: 2 + rng.IntN(2), params: 3, rows: 30, width: 20, codewords: 256, everywhere: true}
		m := k.source()
		for i := range m.topology.Params {
			p := &m.topology.Params[i]
			p.Blockwise, p.Beta2 = false, 0
			for r := range p.Shards {
				p.Shards[r].VmeanStep = Absent
				clear(m.states[i][r].vmeans)
			}
		}
		for _, f := range []Fidelity{Lossless, Balanced} {
			plan := planned(t, m, Options{World: 2, Fidelity: f, MaxGrowth: 0.05})
			target := made(t, plan, m, rng)
			if f == Lossless {
				for i := range m.topology.Params {
					compareBits(t, m, target, plan, i)
				}
			}
			if e := plan.Error.MomentumRelL2(); e > 0.02 || plan.Error.SecondMoment != 0 {
				t.Errorf("%s: momentum error %v, second moment %v", f, e, plan.Error.SecondMoment)
			}
			for r := range plan.Ranks {
				for i := range plan.Ranks[r].Shards {
					s := &plan.Ranks[r].Shards[i]
					if s.BytesAfter != s.Elements+4*s.Blocks() || s.Period > 0 && s.VmeanStep != Absent {
						t.Fatalf("%d bytes for %d elements in %d blocks, vmean step %d", s.BytesAfter, s.Elements, s.Blocks(), s.VmeanStep)
					}
				}
			}
		}
	}
}

// TestTopologyFaults is about sources that no plan is made of, and about those
// that are carried with a warning.
func TestTopologyFaults(t *testing.T) {
	param := func(change func(p *Param)) *memory {
		p := Param{Name: "w", Shape: []int64{8, 4}, LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Sharded: true, Blockwise: true,
			Shards: []SourceShard{{0, 4, 4, 3, 3}, {4, 4, 8, 3, 3}}}
		change(&p)
		k := &maker{rng: newRand(17), codewords: 256}
		m := &memory{topology: Topology{World: 2, Params: []Param{p}}, states: [][]state{nil}}
		for range p.Shards {
			m.books = append(m.books, k.codebook())
		}
		for _, s := range p.Shards {
			if s.Rows < 0 || s.Rows > 100 {
				s.Rows = 0
			}
			m.states[0] = append(m.states[0], k.state(s.Rows*4, s.Period))
		}
		return m
	}
	for _, c := range []struct {
		name   string
		change func(p *Param)
		kind   fault.Kind
	}{
		{"a rank missing", func(p *Param) { p.Shards = p.Shards[:1] }, fault.Incomplete},
		{"rows missing between", func(p *Param) { p.Shards[0].Rows = 3 }, fault.Incomplete},
		{"rows missing at the end", func(p *Param) { p.Shards[1].Rows = 3; p.Shards[1].Period = 4 }, fault.Incomplete},
		{"rows twice", func(p *Param) { p.Shards[1].Row = 3; p.Shards[1].Rows = 5; p.Shards[1].Period = 4 }, fault.Corrupt},
		{"rows beyond", func(p *Param) { p.Shards[1].Rows = 5 }, fault.Corrupt},
		{"negative rows", func(p *Param) { p.Shards[1].Rows = -1 }, fault.Corrupt},
		{"rows past the range of numbers", func(p *Param) { p.Shards[1].Rows = math.MaxInt64 }, fault.Corrupt},
		{"a period that does not divide", func(p *Param) { p.Shards[0].Period = 5 }, fault.Corrupt},
		{"a negative period", func(p *Param) { p.Shards[0].Period = -4 }, fault.Corrupt},
		{"state of an empty shard", func(p *Param) { p.Shards[0].Rows = 8; p.Shards[1] = SourceShard{8, 0, 1, 3, 3} }, fault.Corrupt},
		{"part of a replica", func(p *Param) { p.Sharded = false }, fault.Corrupt},
		{"a shape past the range of numbers", func(p *Param) { p.Shape = []int64{8, 1 << 60} }, fault.Corrupt},
		{"a negative dimension", func(p *Param) { p.Shape = []int64{8, -4} }, fault.Corrupt},
	} {
		m := param(c.change)
		_, err := New(&m.topology, m, Options{World: 3, Fidelity: Balanced})
		if err == nil || fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want a fault of kind %v", c.name, err, c.kind)
		}
	}
	for _, c := range []struct {
		name   string
		change func(p *Param)
		step   int64
		vmean  int64
	}{
		{"a rank without state", func(p *Param) { p.Shards[1].Period, p.Shards[1].Step, p.Shards[1].VmeanStep = 0, 0, 0 }, 3, 3},
		{"steps that differ", func(p *Param) { p.Shards[1].Step = 4 }, 4, 3},
		{"vmean steps that differ", func(p *Param) { p.Shards[1].VmeanStep = 5 }, 3, 5},
	} {
		m := param(c.change)
		plan := planned(t, m, Options{World: 1, Fidelity: Lossless})
		if len(plan.Warnings) != 1 || plan.Warnings[0].Item != "w" {
			t.Errorf("%s: warnings %v", c.name, plan.Warnings)
		}
		if s := plan.Ranks[0].Shards[0]; s.Step != c.step || s.VmeanStep != c.vmean {
			t.Errorf("%s: steps %d and %d, want %d and %d", c.name, s.Step, s.VmeanStep, c.step, c.vmean)
		}
		compareBits(t, m, made(t, plan, m, nil), plan, 0)
	}
	if _, err := New(&Topology{}, nil, Options{World: 0}); fault.KindOf(err) != fault.Usage {
		t.Errorf("a world of 0 ranks: %v", err)
	}
	m := param(func(*Param) {})
	m.books[1] = nil
	if _, err := New(&m.topology, m, Options{World: 1, Fidelity: Lossless}); err == nil || fault.KindOf(err) != fault.Corrupt {
		t.Errorf("momentum without a codebook: %v", err)
	}
	m.books[1] = &gefen.Codebook{}
	if _, err := New(&m.topology, m, Options{World: 1, Fidelity: Lossless}); err == nil || fault.KindOf(err) != fault.Corrupt {
		t.Errorf("a codebook of zeros: %v", err)
	}
}

// TestNothingToPlan is about empty parameters and parameters without state.
func TestNothingToPlan(t *testing.T) {
	topology := Topology{World: 2, Params: []Param{
		{Name: "empty", Shape: []int64{0, 3}, Sharded: true, Blockwise: true, Shards: make([]SourceShard, 2)},
		{Name: "narrow", Shape: []int64{3, 0}, Sharded: true, Blockwise: true, Shards: []SourceShard{{Rows: 2}, {Row: 2, Rows: 1}}},
		{Name: "fresh", Shape: []int64{3}, Sharded: true, Blockwise: true, Shards: []SourceShard{{Rows: 2}, {Row: 2, Rows: 1}}},
		{Name: "scalar", Shape: nil, Blockwise: true, Shards: []SourceShard{{Rows: 1}, {Rows: 1}}},
	}}
	src := &memory{books: make([]*gefen.Codebook, 2)}
	for _, f := range []Fidelity{Lossless, Balanced, Reference} {
		plan, err := New(&topology, src, Options{World: 3, Fidelity: f})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range plan.Ranks {
			if r.Codebook != nil || r.Bytes != 0 {
				t.Errorf("%s: a rank without state has %d bytes", f, r.Bytes)
			}
		}
	}
}

// TestValuesThatNoOptimizerMakes plans states with magnitudes and second moments
// that a loader refuses: they are carried where blocks are, and refused where
// something is to be computed from them.
func TestValuesThatNoOptimizerMakes(t *testing.T) {
	rng := newRand(18)
	carried, refused := 0, 0
	odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -1, math.MaxFloat32, math.SmallestNonzeroFloat32}
	for range 60 {
		k := &maker{rng: rng, world: 1 + rng.IntN(3), params: 2, rows: 20, width: 10, codewords: 256, everywhere: true}
		m := k.source()
		for i := range m.states {
			for r := range m.states[i] {
				s := &m.states[i][r]
				for b := range s.magnitudes {
					if rng.IntN(3) == 0 {
						s.magnitudes[b] = odd[rng.IntN(len(odd))]
						s.vmeans[b] = odd[rng.IntN(len(odd))]
					}
				}
			}
		}
		for _, f := range []Fidelity{Lossless, Balanced, Reference} {
			plan, err := New(&m.topology, m, Options{World: 1 + rng.IntN(3), Fidelity: f, MaxGrowth: 0.05})
			switch {
			case err == nil:
				carried++
				made(t, plan, m, rng)
			case fault.KindOf(err) == fault.Corrupt:
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
	if carried == 0 || refused == 0 {
		t.Errorf("%d plans were made and %d refused", carried, refused)
	}
}
