package reshard

import (
	"math"
	"testing"
)

// TestChoiceIsNearTheBest compares the update error of the chosen periods with the
// least that any choice of periods within the budget has, given the codebooks: that
// of an oracle which has tried every period of every shard with the very gradients
// that come. What a choice cannot know costs little.
func TestChoiceIsNearTheBest(t *testing.T) {
	logs, n := 0.0, 0
	for k, c := range []struct{ world, to int }{{4, 2}, {2, 3}, {3, 2}, {2, 1}, {3, 5}} {
		for seed := range uint64(2) {
			tr := newTraining(300+10*uint64(k)+seed, []int64{60, 32}, []int64{36, 48}, []int64{48, 20}, []int64{64})
			chosen, best := tr.regret(t, c.world, c.to)
			if chosen < best-1e-9 {
				t.Errorf("%d → %d: the choice's error %.4g is below the oracle's %.4g", c.world, c.to, chosen, best)
			}
			logs += math.Log(chosen / best)
			n++
		}
	}
	if ratio := math.Exp(logs / float64(n)); ratio > 1.08 {
		t.Errorf("the update error is %.3f times the oracle's, on average", ratio)
	}
}

// regret gives the update error of the balanced plan after two more steps, and the
// oracle's.
func (tr *training) regret(t *testing.T, world, to int) (chosen, best float64) {
	t.Helper()
	ranks, m := tr.trained(t, world, 5)
	gradients := [][][]float32{tr.gradients(), tr.gradients()}
	var want []float32
	for _, g := range gradients {
		want = tr.step(t, ranks, g)
	}
	plan := planned(t, m, Options{World: to, Fidelity: Balanced, MaxGrowth: 0.05})
	try := planned(t, m, Options{World: to, Fidelity: Balanced, MaxGrowth: 0.05})
	options := try.alternatives(t, m)
	// Every pass gives each shard its next period, all shards at once: what one does
	// to its values is not the others' concern.
	for pass, more := 0, true; more; pass++ {
		more = false
		var at []*option
		for r := range options {
			for i := range options[r] {
				o := &options[r][i][min(pass, len(options[r][i])-1)]
				more = more || pass+1 < len(options[r][i])
				try.set(r, i, o.period)
				at = append(at, o)
			}
		}
		resumed := tr.continued(t, try, m)
		var got []float32
		for _, g := range gradients {
			got = tr.step(t, resumed, g)
		}
		tr.blame(got, want, try, at)
	}
	for r := range options {
		for i, list := range options[r] {
			for _, o := range list {
				if o.period == plan.Ranks[r].Shards[i].Period {
					chosen += o.cost
				}
			}
		}
		for _, o := range choose(options[r], try.Ranks[r].Budget, searchWork) {
			best += o.cost
		}
	}
	return math.Sqrt(chosen), math.Sqrt(best)
}

// alternatives are the periods of each rank's shards, without costs.
func (plan *Plan) alternatives(t *testing.T, src Source) [][][]option {
	t.Helper()
	out := make([][][]option, len(plan.Ranks))
	for r := range plan.Ranks {
		rank := &plan.Ranks[r]
		p := &rankPlanner{topology: plan.topology, src: src, rank: rank, sources: rank.sources()}
		for i := range rank.Shards {
			var list []option
			exact := layout{period: exactPeriod(rank.Shards[i].Pieces, rank.Shards[i].Elements)}
			if err := p.options(&list, i, exact, rank.Origin != Kept, false); err != nil {
				t.Fatal(err)
			}
			out[r] = append(out[r], list)
		}
	}
	return out
}

// set gives a shard another period.
func (plan *Plan) set(r, i int, period int64) {
	rank := &plan.Ranks[r]
	p := &rankPlanner{topology: plan.topology, rank: rank}
	l := layout{period: period}
	if period == 1 && rank.Origin != Kept {
		l.as = Expand
	}
	p.settleShard(i, l)
}

// blame makes the squared difference of each shard's values the cost of its option,
// the options in the order of ranks and parameters.
func (tr *training) blame(got, want []float32, plan *Plan, options []*option) {
	at := 0
	for i := range tr.shapes {
		for r := range plan.Ranks {
			sum := 0.0
			for range plan.Ranks[r].Shards[i].Elements {
				d := float64(got[at]) - float64(want[at])
				sum += d * d
				at++
			}
			options[r*len(tr.shapes)+i].cost = sum
		}
	}
}
