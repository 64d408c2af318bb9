package reshard

import (
	"math"
	"math/rand/v2"
	"testing"

	"gefenckpt/gefen"
)

// training is a run of the optimizer on some ranks, from gradients of random
// values whose sizes differ by row, by column and from step to step.
type training struct {
	shapes  [][]int64
	options gefen.Options
	scales  [][]float64 // by parameter and element
	rng     *rand.Rand
}

func newTraining(seed uint64, shapes ...[]int64) *training {
	tr := &training{shapes: shapes, rng: newRand(seed), options: gefen.Options{LR: 2e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}}
	for _, shape := range shapes {
		p := Param{Shape: shape}
		columns := make([]float64, p.RowElements())
		for c := range columns {
			columns[c] = math.Exp(0.7 * tr.rng.NormFloat64())
		}
		var scale []float64
		for range p.Rows() {
			row := math.Exp(0.7 * tr.rng.NormFloat64())
			for _, c := range columns {
				scale = append(scale, row*c)
			}
		}
		tr.scales = append(tr.scales, scale)
	}
	return tr
}

// gradients of one step, whole parameters.
func (tr *training) gradients() [][]float32 {
	out := make([][]float32, len(tr.shapes))
	for i, shape := range tr.shapes {
		p := Param{Shape: shape}
		width := int(p.RowElements())
		size := 1.0
		for j, s := range tr.scales[i] {
			if j%width == 0 {
				size = math.Exp(0.5 * tr.rng.NormFloat64())
			}
			out[i] = append(out[i], float32(1e-3*s*size*tr.rng.NormFloat64()))
		}
	}
	return out
}

// ranks are optimizers on world ranks with values of 0.
func (tr *training) ranks(world int) []*gefen.Optimizer {
	var out []*gefen.Optimizer
	for r := range world {
		o := &gefen.Optimizer{Groups: []gefen.Options{tr.options}}
		for _, shape := range tr.shapes {
			from, to := Chunk(shape[0], world, r)
			local := append([]int64{to - from}, shape[1:]...)
			n := (to - from) * (&Param{Shape: shape}).RowElements()
			o.Parameters = append(o.Parameters, gefen.Parameter{Name: "p", Shape: shape, Local: local, Sharded: true,
				DType: gefen.Float32, Values: make([]float32, n)})
		}
		out = append(out, o)
	}
	return out
}

// step takes one step on every rank, and returns the values of all parameters.
func (tr *training) step(t *testing.T, ranks []*gefen.Optimizer, whole [][]float32) []float32 {
	t.Helper()
	values := make([][]float32, len(tr.shapes))
	for r, o := range ranks {
		var grads [][]float32
		for i, shape := range tr.shapes {
			from, to := Chunk(shape[0], len(ranks), r)
			width := (&Param{Shape: shape}).RowElements()
			grads = append(grads, whole[i][from*width:to*width])
		}
		if err := o.Step(grads); err != nil {
			t.Fatal(err)
		}
		for i := range o.Parameters {
			values[i] = append(values[i], o.Parameters[i].Values...)
		}
	}
	var all []float32
	for _, v := range values {
		all = append(all, v...)
	}
	return all
}

// source is the state of the ranks.
func (tr *training) source(ranks []*gefen.Optimizer) *memory {
	m := &memory{topology: Topology{World: len(ranks)}}
	for i, shape := range tr.shapes {
		p := Param{Name: "p", Shape: shape, LR: tr.options.LR, Beta1: tr.options.Beta1, Beta2: tr.options.Beta2, Eps: tr.options.Eps,
			Sharded: true, Blockwise: true}
		var states []state
		for r, o := range ranks {
			from, to := Chunk(shape[0], len(ranks), r)
			s := &o.Parameters[i].State
			p.Shards = append(p.Shards, SourceShard{Row: from, Rows: to - from, Period: int64(s.Period), Step: s.Step, VmeanStep: s.VmeanStep})
			states = append(states, state{int64(s.Period), s.Index, s.Magnitude, s.Vmean})
		}
		m.topology.Params = append(m.topology.Params, p)
		m.states = append(m.states, states)
	}
	for _, o := range ranks {
		m.books = append(m.books, o.Codebook)
	}
	return m
}

// resumed are ranks that continue from the target of a plan.
func (tr *training) resumed(t *testing.T, m *memory, o Options) []*gefen.Optimizer {
	t.Helper()
	return tr.continued(t, planned(t, m, o), m)
}

// continued are ranks with the target of a plan.
func (tr *training) continued(t *testing.T, plan *Plan, m *memory) []*gefen.Optimizer {
	t.Helper()
	target := made(t, plan, m, nil)
	ranks := tr.ranks(len(plan.Ranks))
	for r, rank := range ranks {
		rank.Codebook = target.books[r]
		for i := range rank.Parameters {
			s := &target.states[i][r]
			if s.period == 0 {
				continue
			}
			p := &plan.Ranks[r].Shards[i]
			rank.Parameters[i].State = gefen.State{Period: int(s.period), Step: p.Step, VmeanStep: p.VmeanStep,
				Index: s.index, Magnitude: s.magnitudes, Vmean: s.vmeans, FactoredStep: gefen.Absent, NormuonStep: gefen.Absent}
		}
	}
	return ranks
}

// TestContinuation trains, reshards and trains on, and compares the update with
// that of the run which was never resharded: balanced against what GefenDCPState
// would do, which takes as many bytes as it happens to.
func TestContinuation(t *testing.T) {
	logs, steps := 0.0, 0
	for n, c := range []struct{ world, to int }{{2, 4}, {4, 2}, {2, 3}, {3, 2}, {2, 1}, {3, 5}, {3, 6}} {
		for seed := range uint64(3) {
			tr := newTraining(10*uint64(n)+seed, []int64{60, 32}, []int64{36, 48}, []int64{48, 20}, []int64{64})
			ranks, m := tr.trained(t, c.world, 5)
			balanced := tr.resumed(t, m, Options{World: c.to, Fidelity: Balanced, MaxGrowth: 0.05})
			reference := tr.resumed(t, m, Options{World: c.to, Fidelity: Reference})
			for range 3 {
				g := tr.gradients()
				want := tr.step(t, ranks, g)
				b, r := distance(tr.step(t, balanced, g), want), distance(tr.step(t, reference, g), want)
				logs += math.Log(max(b, 1e-6) / r)
				steps++
			}
		}
	}
	if ratio := math.Exp(logs / float64(steps)); ratio > 0.85 {
		t.Errorf("the update error is %.3f of the reference's, on average", ratio)
	}
}

// trained are ranks after some steps, with values of 0, and a copy of their state.
func (tr *training) trained(t *testing.T, world, steps int) ([]*gefen.Optimizer, *memory) {
	t.Helper()
	ranks := tr.ranks(world)
	for range steps {
		tr.step(t, ranks, tr.gradients())
	}
	m := tr.source(ranks)
	for _, o := range ranks {
		for i := range o.Parameters {
			clear(o.Parameters[i].Values)
			o.Parameters[i].State = clone(o.Parameters[i].State)
		}
	}
	return ranks, m
}

func clone(s gefen.State) gefen.State {
	s.Index = append([]uint8(nil), s.Index...)
	s.Magnitude = append([]float32(nil), s.Magnitude...)
	s.Vmean = append([]float32(nil), s.Vmean...)
	return s
}

// distance is the relative L2 distance from want.
func distance(got, want []float32) float64 {
	var d, w float64
	for i := range want {
		x := float64(got[i]) - float64(want[i])
		d += x * x
		w += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(d / w)
}

// TestKeptBlocksContinueBitForBit splits ranks between blocks: the next steps are
// the same to the last bit.
func TestKeptBlocksContinueBitForBit(t *testing.T) {
	tr := newTraining(200, []int64{64, 256}, []int64{16, 512})
	ranks, m := tr.trained(t, 2, 4)
	plan := planned(t, m, Options{World: 4, Fidelity: Balanced, MaxGrowth: 0.05})
	for r := range plan.Ranks {
		for i := range plan.Ranks[r].Shards {
			if op := plan.Ranks[r].Shards[i].Operation; op != Keep {
				t.Fatalf("rank %d, parameter %d: %v; the case is to keep all", r, i, op)
			}
		}
	}
	resumed := tr.resumed(t, m, Options{World: 4, Fidelity: Balanced, MaxGrowth: 0.05})
	for step := range 4 {
		g := tr.gradients()
		want, got := tr.step(t, ranks, g), tr.step(t, resumed, g)
		for i := range want {
			if !same(want[i], got[i]) {
				t.Fatalf("step %d: value %d is %v, want %v", step+1, i, got[i], want[i])
			}
		}
	}
}
