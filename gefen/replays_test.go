package gefen

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// replay is a real checkpoint with its continuation: states of the ranks of one or
// more topologies, and the parameters that the same gradients lead each of them to.
// The first topology is the one that the gradients were recorded on, the others are
// those that the reference resharded the checkpoint to.
type replay struct {
	Factored bool
	Groups   []struct {
		LR          float64 `json:"lr"`
		Beta1       float64 `json:"beta1"`
		Beta2       float64 `json:"beta2"`
		Eps         float64 `json:"eps"`
		WeightDecay float64 `json:"weight_decay"`
	}
	Parameters []struct {
		Name   string
		Group  int
		Before array
		Grads  []array
		After  []array
	}
	Topologies []struct {
		Ranks []struct {
			Codebook *array
			States   []replayState
		}
		After [][]string // digest per step and parameter
	}
}

type replayState struct {
	snapshot
	LocalShape []int64 `json:"local_shape"` // none: the whole parameter
	Sharded    bool
}

// state is the state in memory.
func (s *replayState) state(t *testing.T) State {
	t.Helper()
	out := State{Period: s.Period, Step: s.Step, VmeanStep: s.VmeanStep, FactoredStep: s.FactoredStep}
	if s.Index != nil {
		out.Index, out.Magnitude = s.Index.uint8s(t), s.Magnitude.float32s(t)
	}
	if s.Vmean != nil {
		out.Vmean = s.Vmean.float32s(t)
	}
	if s.VRow != nil {
		out.Row, out.Col = s.VRow.float32s(t), s.VCol.float32s(t)
	}
	return out
}

// optimizer is the optimizer of one rank, whose shards begin at the given rows, which
// it advances to those of the next rank.
func (r *replay) optimizer(t *testing.T, topology, rank int, rows []int64) *Optimizer {
	t.Helper()
	given := r.Topologies[topology].Ranks[rank]
	o := &Optimizer{Policy: Policy{FactoredV2D: r.Factored}}
	if given.Codebook != nil {
		o.Codebook = given.Codebook.codebook(t)
	}
	for _, g := range r.Groups {
		o.Groups = append(o.Groups, Options{g.LR, g.Beta1, g.Beta2, g.Eps, g.WeightDecay, nil})
	}
	for i, p := range r.Parameters {
		state := &given.States[i]
		shape := int64s(p.Before.Shape)
		local := state.LocalShape
		if local == nil {
			local = shape
		}
		of := Parameter{
			Name: p.Name, Shape: shape, Local: local, Sharded: state.Sharded, Group: p.Group,
			DType: dtype(t, p.Before.Dtype), State: state.state(t),
		}
		of.Values = of.shard(p.Before.float32s(t), rows[i])
		o.Parameters = append(o.Parameters, of)
		if faults := of.Validate(); len(faults) > 0 {
			t.Fatalf("%s on rank %d: %v", p.Name, rank, faults)
		}
	}
	return o
}

// shard copies the rank's rows, from row on, of the whole parameter's values.
func (p *Parameter) shard(whole []float32, row int64) []float32 {
	n, _ := elements(p.Local)
	first := row * (int64(len(whole)) / p.Shape[0])
	return append([]float32{}, whole[first:first+n]...)
}

// TestReplays continues real checkpoints from their own states with the gradients that
// were recorded, on every rank, and compares the parameters after every step.
func TestReplays(t *testing.T) {
	files, err := os.ReadDir("testdata/replays")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d replays: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file.Name(), ".json.gz"), func(t *testing.T) {
			t.Parallel()
			var r replay
			readGzipJSON(t, "replays/"+file.Name(), &r)
			for topology := range r.Topologies {
				t.Run(fmt.Sprintf("%d ranks", len(r.Topologies[topology].Ranks)), func(t *testing.T) { r.play(t, topology) })
			}
		})
	}
}

func (r *replay) play(t *testing.T, topology int) {
	after := make([][][]float32, len(r.Parameters[0].Grads)) // step, parameter: values of the ranks so far
	rows := make([]int64, len(r.Parameters))
	for rank := range r.Topologies[topology].Ranks {
		o := r.optimizer(t, topology, rank, rows)
		for step := range after {
			grads := make([][]float32, len(o.Parameters))
			for i := range grads {
				grads[i] = o.Parameters[i].shard(r.Parameters[i].Grads[step].float32s(t), rows[i])
			}
			if err := o.Step(grads); err != nil {
				t.Fatal(err)
			}
			if after[step] == nil {
				after[step] = make([][]float32, len(grads))
			}
			for i := range grads {
				if p := &o.Parameters[i]; p.Sharded || rank == 0 {
					after[step][i] = append(after[step][i], p.Values...)
				}
			}
		}
		for i := range o.Parameters {
			if p := &o.Parameters[i]; p.Sharded {
				rows[i] += p.Local[0]
			}
		}
	}
	for step, values := range after {
		for i, p := range r.Parameters {
			where := fmt.Sprintf("step %d, %s", step+1, p.Name)
			if topology == 0 {
				if n := differing(values[i], p.After[step].float32s(t)); n > 0 {
					t.Errorf("%s: %d of %d values differ", where, n, len(values[i]))
				}
			}
			if digest(dtype(t, p.Before.Dtype), values[i]) != r.Topologies[topology].After[step][i] {
				t.Errorf("%s: the values differ", where)
			}
		}
	}
}
