package gefen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
)

// snapshot is what the reference holds of one parameter after a step.
type snapshot struct {
	Param        *array `json:"param"`
	Period       int    `json:"automatic_period"`
	Step         int64  `json:"step"`
	Index        *array `json:"m_codebook"`
	Magnitude    *array `json:"m_magnitude"`
	Vmean        *array `json:"vmean"`
	VmeanStep    int64  `json:"vmean_step"`
	VRow         *array `json:"v_row"`
	VCol         *array `json:"v_col"`
	FactoredStep int64  `json:"factored_step"`
}

// compare reports every field of p that differs from the snapshot in a bit.
func (want *snapshot) compare(t *testing.T, where string, p *Parameter) {
	t.Helper()
	got := &p.State
	if got.Period != want.Period || got.Step != want.Step || got.VmeanStep != want.VmeanStep || got.FactoredStep != want.FactoredStep {
		t.Errorf("%s: period %d, steps %d, %d, %d, expected %d and %d, %d, %d", where, got.Period, got.Step,
			got.VmeanStep, got.FactoredStep, want.Period, want.Step, want.VmeanStep, want.FactoredStep)
	}
	if want.Index != nil && !slices.Equal(got.Index, want.Index.uint8s(t)) {
		t.Errorf("%s: indices differ", where)
	}
	for _, f := range []struct {
		name string
		got  []float32
		want *array
	}{
		{"param", p.Values, want.Param},
		{"m_magnitude", got.Magnitude, want.Magnitude},
		{"vmean", got.Vmean, want.Vmean},
		{"v_row", got.Row, want.VRow},
		{"v_col", got.Col, want.VCol},
	} {
		var values []float32
		if f.want != nil {
			values = f.want.float32s(t)
		}
		if n := differing(f.got, values); n > 0 {
			t.Errorf("%s: %s differs in %d of %d values: %v, expected %v", where, f.name, n, len(values), f.got, values)
		}
	}
}

// differing counts the values whose bits differ.
func differing(a, b []float32) int {
	if len(a) != len(b) {
		return max(len(a), len(b))
	}
	n := 0
	for i, x := range a {
		if math.Float32bits(x) != math.Float32bits(b[i]) {
			n++
		}
	}
	return n
}

func dtype(t testing.TB, name string) DType {
	t.Helper()
	switch name {
	case "float32", "torch.float32":
		return Float32
	case "bf16", "bfloat16", "torch.bfloat16":
		return BFloat16
	}
	t.Fatalf("dtype %q", name)
	return 0
}

func int64s(x []int) []int64 {
	out := make([]int64, len(x))
	for i, v := range x {
		out[i] = int64(v)
	}
	return out
}

// TestStepVectorsOfOneParameter replays the runs of the specification, the example
// worked out in it among them.
func TestStepVectorsOfOneParameter(t *testing.T) {
	type vector struct {
		Name     string
		Dtype    string
		Factored bool `json:"factored_v_2d"`
		Hyper    map[string]string
		Param0   array
		Steps    []struct {
			snapshot
			Grad array
		}
		Period   int `json:"automatic_period"`
		Codebook array
	}
	for _, v := range goldenSpec[vector](t, "step") {
		t.Run(v.Name, func(t *testing.T) {
			hyper := func(name string) float64 {
				x, err := strconv.ParseFloat(v.Hyper[name], 64)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			shape := int64s(v.Param0.Shape)
			o := Optimizer{
				Parameters: []Parameter{{Shape: shape, Local: shape, DType: dtype(t, v.Dtype), Values: v.Param0.float32s(t)}},
				Groups:     []Options{{hyper("lr"), hyper("beta1"), hyper("beta2"), hyper("eps"), hyper("weight_decay"), nil}},
				Policy:     Policy{FactoredV2D: v.Factored},
			}
			for i, s := range v.Steps {
				if err := o.Step([][]float32{s.Grad.float32s(t)}); err != nil {
					t.Fatal(err)
				}
				s.Period = v.Period
				s.compare(t, fmt.Sprintf("step %d", i+1), &o.Parameters[0])
				if *o.Codebook != *v.Codebook.codebook(t) {
					t.Errorf("step %d: the codebook differs", i+1)
				}
			}
		})
	}
}

// TestStepVectorsOfSeveralParameters replays runs of several parameters that learn
// one codebook together.
func TestStepVectorsOfSeveralParameters(t *testing.T) {
	type vector struct {
		Name    string
		Options struct {
			LR          float64
			Betas       *[2]float64
			Eps         *float64
			WeightDecay float64 `json:"weight_decay"`
			Factored    *bool   `json:"factored_v_2d"`
			Force1D     bool    `json:"force_1d_period_one"`
		}
		Dtype string
		Start []struct {
			Name  string
			Param array
		}
		Steps []struct {
			Grads    []array
			After    []snapshot
			Codebook array
		}
	}
	for _, v := range golden[vector](t, "step") {
		t.Run(v.Name, func(t *testing.T) {
			group := Options{LR: v.Options.LR, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: v.Options.WeightDecay}
			if v.Options.Betas != nil {
				group.Beta1, group.Beta2 = v.Options.Betas[0], v.Options.Betas[1]
			}
			if v.Options.Eps != nil {
				group.Eps = *v.Options.Eps
			}
			o := Optimizer{
				Groups: []Options{group},
				Policy: Policy{
					PeriodRule:  PeriodRule{Force1D: v.Options.Force1D},
					FactoredV2D: v.Options.Factored == nil || *v.Options.Factored,
				},
			}
			for _, s := range v.Start {
				shape := int64s(s.Param.Shape)
				o.Parameters = append(o.Parameters, Parameter{
					Name: s.Name, Shape: shape, Local: shape, DType: dtype(t, v.Dtype), Values: s.Param.float32s(t),
				})
			}
			for i, s := range v.Steps {
				grads := make([][]float32, len(s.Grads))
				for k, g := range s.Grads {
					grads[k] = g.float32s(t)
				}
				if err := o.Step(grads); err != nil {
					t.Fatal(err)
				}
				for k := range s.After {
					s.After[k].compare(t, fmt.Sprintf("step %d, %s", i+1, o.Parameters[k].Name), &o.Parameters[k])
				}
				if *o.Codebook != *s.Codebook.codebook(t) {
					t.Errorf("step %d: the codebook differs", i+1)
				}
			}
		})
	}
}
