package gefen

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
)

// muonAfter is what the reference recorded of one of GefenMuon's parameters: beside
// digests and counters, what Newton-Schulz took, as a digest, and made, NorMuon's
// state, and the values.
type muonAfter struct {
	Taken       string
	Made        array
	Value       array
	NormuonV    *array `json:"normuon_v"`
	NormuonStep int64  `json:"normuon_step"`
}

// relative is the L2 norm of got - want over that of want.
func relative(t *testing.T, got, want []float32) float64 {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, expected %d", len(got), len(want))
	}
	num, den := 0.0, 0.0
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		num += d * d
		den += float64(w) * float64(w)
	}
	if num == 0 {
		return 0
	}
	return math.Sqrt(num / den)
}

// TestMuonRecordings replays runs of GefenMuon. Their momentum, and what Newton-Schulz
// takes, are equal to the bit; what it makes, and what follows, within a few units of
// bfloat16, as sums of products depend on the library that the reference calls.
func TestMuonRecordings(t *testing.T) {
	var f struct {
		Runs []struct {
			recording
			Muon struct {
				Momentum float64
				Nesterov bool
				AdjustLR string `json:"adjust_lr_fn"`
				Normuon  bool
				Cautious bool
				Schedule [][3]float64
			}
		}
	}
	readGzipJSON(t, "recordings-muon.json.gz", &f)
	for run, r := range f.Runs {
		options := MuonOptions{
			Momentum: r.Muon.Momentum, Nesterov: r.Muon.Nesterov, AdjustLR: r.Muon.AdjustLR, Schedule: r.Muon.Schedule,
			Normuon: r.Muon.Normuon, NormuonBeta2: 0.95, NormuonEps: 1e-8, Cautious: r.Muon.Cautious,
		}
		if options.Schedule == nil {
			options.Schedule = slices.Repeat([][3]float64{{3.4445, -4.775, 2.0315}}, 5)
		}
		for rank := range r.Ranks {
			t.Run(fmt.Sprintf("%s/%d", r.Name, rank), func(t *testing.T) {
				t.Parallel()
				o, rows := r.optimizer(t, run, rank)
				o.Groups = []Options{{LR: 0.02, Beta1: options.Momentum, Eps: 1e-7, WeightDecay: 0.1, Muon: &options}}
				for i := range o.Parameters {
					o.Parameters[i].Mode = Approx
				}
				for k, want := range r.Ranks[rank].Steps {
					r.muonStep(t, run, k, o, rows, want.After)
				}
			})
		}
	}
}

// muonStep takes step k and compares what it leads to.
func (r *recording) muonStep(t *testing.T, run, k int, o *Optimizer, rows []int64, after []map[string]any) {
	t.Helper()
	scale := float32(1)
	if r.Scales != nil {
		scale = r.Scales[k]
	}
	grads := make([][]float32, len(o.Parameters))
	for i := range grads {
		grads[i] = r.tensor(run, k, i, rows[i], &o.Parameters[i], scale)
	}
	before := o.clone()
	if err := o.Step(grads); err != nil {
		t.Fatal(err)
	}
	for i := range o.Parameters {
		p := &o.Parameters[i]
		where := fmt.Sprintf("step %d, %s", k+1, p.Name)
		if len(grads[i]) == 0 {
			if p.State.Index != nil {
				t.Errorf("%s: an empty shard has state", where)
			}
			continue
		}
		got := held(p)
		for _, field := range []string{"m_codebook", "m_magnitude", "automatic_period", "step"} {
			if got[field] != after[i][field] {
				t.Errorf("%s: %s is %v, expected %v", where, field, got[field], after[i][field])
			}
		}
		var want muonAfter
		raw, err := json.Marshal(after[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		old := &before.Parameters[i].State
		old.Period = p.State.Period
		old.begin(len(grads[i]))
		options := o.Groups[0].Muon
		taken := make([]float32, len(grads[i]))
		o.NewMuonStep(*options, len(taken), p.DType, o.Codebook, o.quantizer).Blocks(taken, grads[i], old.Blocks(), 0)
		if d := digest(p.DType, taken); d != want.Taken {
			t.Errorf("%s: Newton-Schulz takes %s, expected %s", where, d, want.Taken)
		}
		cols := int(p.Shape[1])
		made := Orthogonalize(taken, len(taken)/cols, cols, options.Schedule, 1e-7, 2)
		if e := relative(t, made, want.Made.float32s(t)); !(e <= OrthogonalTolerance) {
			t.Errorf("%s: Newton-Schulz makes a matrix with error %g", where, e)
		}
		if want.NormuonV != nil {
			if p.State.NormuonStep != want.NormuonStep {
				t.Errorf("%s: NorMuon's age is %d, expected %d", where, p.State.NormuonStep, want.NormuonStep)
			}
			if e := relative(t, p.State.NormuonV, want.NormuonV.float32s(t)); !(e <= OrthogonalTolerance) {
				t.Errorf("%s: NorMuon's state has error %g", where, e)
			}
		}
		// The update is the change of the values since the last step.
		value, was := want.Value.float32s(t), before.Parameters[i].Values
		change, expected := make([]float32, len(value)), make([]float32, len(value))
		for j := range value {
			change[j], expected[j] = p.Values[j]-was[j], value[j]-was[j]
		}
		if e := relative(t, change, expected); !(e <= 2*OrthogonalTolerance) {
			t.Errorf("%s: the update has error %g", where, e)
		}
		p.Values = value
	}
}

// clone copies what a step changes.
func (o *Optimizer) clone() *Optimizer {
	c := *o
	c.Parameters = slices.Clone(o.Parameters)
	for i := range c.Parameters {
		p := &c.Parameters[i]
		p.Values = slices.Clone(p.Values)
		p.State.Index, p.State.Magnitude = slices.Clone(p.State.Index), slices.Clone(p.State.Magnitude)
	}
	return &c
}
