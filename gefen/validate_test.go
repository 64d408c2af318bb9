package gefen

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// validParameter is a parameter whose state has everything that one of GefenMuon,
// or of Gefen itself, may have.
func validParameter(mode ShardedMode) Parameter {
	p := Parameter{
		Name: "w", Shape: []int64{4, 6}, Local: []int64{2, 6}, Sharded: true, Mode: mode,
		State: State{
			Period: 4, Step: 3, Index: make([]uint8, 12), Magnitude: make([]float32, 3),
			Vmean: make([]float32, 3), VmeanStep: 2,
			Factored: Factored{Row: make([]float32, 4), Col: make([]float32, 6)}, FactoredStep: 1,
		},
	}
	if mode == Approx {
		p.State.NormuonV, p.State.NormuonStep = make([]float32, 2), 3
	}
	return p
}

func TestValidStates(t *testing.T) {
	for name, change := range map[string]func(p *Parameter){
		"both second moments": func(p *Parameter) {},
		"only by blocks":      func(p *Parameter) { p.State.Factored, p.State.FactoredStep = Factored{}, 0 },
		"only factored":       func(p *Parameter) { p.State.Vmean, p.State.VmeanStep = nil, 0 },
		"vmean of old":        func(p *Parameter) { p.State.VmeanStep = Absent },
		"fresh":               func(p *Parameter) { p.State = State{} },
		"empty shard":         func(p *Parameter) { p.State, p.Local = State{}, []int64{0, 6} },
		"one block":           func(p *Parameter) { p.State.Period = 12; p.State.Magnitude, p.State.Vmean = []float32{1}, []float32{2} },
		"values":              func(p *Parameter) { p.Values = make([]float32, 12) },
	} {
		t.Run(name, func(t *testing.T) {
			p := validParameter(Plain)
			change(&p)
			if faults := p.Validate(); len(faults) > 0 {
				t.Error(faults)
			}
		})
	}
	t.Run("NorMuon", func(t *testing.T) {
		p := validParameter(Approx)
		p.State.Vmean, p.State.VmeanStep, p.State.Factored, p.State.FactoredStep = nil, 0, Factored{}, 0
		if faults := p.Validate(); len(faults) > 0 {
			t.Error(faults)
		}
	})
	t.Run("a period alone, distributed", func(t *testing.T) {
		p := validParameter(Distributed)
		p.State = State{Period: 8} // divides 24, not 12
		if faults := p.Validate(); len(faults) > 0 {
			t.Error(faults)
		}
	})
}

// rules are the rules of the faults, in order.
func rules(faults []error) string {
	var out []string
	for _, err := range faults {
		var f *Fault
		if errors.As(err, &f) {
			out = append(out, f.Rule)
		} else {
			out = append(out, err.Error())
		}
	}
	return strings.Join(out, " ")
}

func TestFaultsOfAState(t *testing.T) {
	nan := float32(math.NaN())
	for _, v := range []struct {
		name   string
		mode   ShardedMode
		change func(p *Parameter)
		want   string
	}{
		{"negative steps", Plain, func(p *Parameter) {
			p.State.Step, p.State.VmeanStep, p.State.FactoredStep = -2, -2, -1
		}, "S3 S3 S3"},
		{"period that does not divide", Plain, func(p *Parameter) { p.State.Period = 5 }, "S4"},
		{"negative period", Plain, func(p *Parameter) { p.State.Period = -4 }, "S4"},
		{"period of nothing", Plain, func(p *Parameter) { p.Local, p.State = []int64{0, 6}, State{Period: 1} }, "S4"},
		{"vmean without momentum", Plain, func(p *Parameter) {
			p.State = State{Vmean: make([]float32, 3), VmeanStep: 1}
		}, "S5"},
		{"step without momentum", Plain, func(p *Parameter) { p.State = State{Step: 1} }, "S5"},
		{"period without momentum", Approx, func(p *Parameter) { p.State = State{Period: 4} }, "S6"},
		{"no magnitude", Plain, func(p *Parameter) { p.State.Magnitude = nil }, "S7"},
		{"no period", Plain, func(p *Parameter) { p.State.Period = 0 }, "S7"},
		{"no step", Plain, func(p *Parameter) { p.State.Step = 0 }, "S7"},
		{"too few indices", Plain, func(p *Parameter) { p.State.Index = p.State.Index[:8] }, "S8"},
		{"too many magnitudes", Plain, func(p *Parameter) { p.State.Magnitude = make([]float32, 4) }, "S9"},
		{"negative magnitude", Plain, func(p *Parameter) { p.State.Magnitude[2] = -1 }, "S9"},
		{"infinite vmean", Plain, func(p *Parameter) { p.State.Vmean[1] = float32(math.Inf(1)) }, "S10"},
		{"vmean that is no number", Plain, func(p *Parameter) { p.State.Vmean[1] = nan }, "S10"},
		{"age without vmean", Plain, func(p *Parameter) { p.State.Vmean = nil }, "S11"},
		{"no second moment", Plain, func(p *Parameter) {
			p.State.Vmean, p.State.VmeanStep, p.State.Factored, p.State.FactoredStep = nil, 0, Factored{}, 0
		}, "S12"},
		{"vmean without age", Plain, func(p *Parameter) {
			p.State.VmeanStep, p.State.Factored, p.State.FactoredStep = 0, Factored{}, 0
		}, "S12"},
		{"factored without age", Plain, func(p *Parameter) { p.State.FactoredStep = 0 }, "S12"},
		{"no v_col", Plain, func(p *Parameter) { p.State.Col = nil }, "S13"},
		{"age without v_row", Plain, func(p *Parameter) { p.State.Factored = Factored{} }, "S13"},
		{"factored of a vector", Plain, func(p *Parameter) { p.Shape, p.Local = []int64{24}, []int64{12} }, "S14"},
		{"v_row of the shard", Plain, func(p *Parameter) { p.State.Row = p.State.Row[:2] }, "S14"},
		{"negative v_col", Plain, func(p *Parameter) { p.State.Col[0] = -1 }, "S14"},
		{"NorMuon in Gefen", Plain, func(p *Parameter) {
			p.State.NormuonV, p.State.NormuonStep = make([]float32, 2), 1
		}, "S15"},
		{"NorMuon without age", Approx, func(p *Parameter) { p.State.NormuonStep = 0 }, "S15"},
		{"NorMuon age alone", Approx, func(p *Parameter) { p.State.NormuonV = nil }, "S15"},
		{"NorMuon of whole rows", Approx, func(p *Parameter) { p.State.NormuonV = make([]float32, 4) }, "S15"},
		{"several at once", Plain, func(p *Parameter) {
			p.State.Step, p.State.Magnitude[0], p.State.Col = 0, nan, nil
		}, "S7 S9 S13"},
		{"shape that overflows", Plain, func(p *Parameter) { p.Local = []int64{1 << 40, 1 << 40} }, ""},
		{"shapes of other dimensions", Plain, func(p *Parameter) { p.Shape = []int64{24} }, ""},
		{"too few values", Plain, func(p *Parameter) { p.Values = make([]float32, 3) }, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := validParameter(v.mode)
			v.change(&p)
			faults := p.Validate()
			if len(faults) == 0 || rules(faults) != v.want {
				t.Errorf("faults %v, expected %s", faults, v.want)
			}
			for _, err := range faults {
				if text := err.Error(); !strings.HasPrefix(text, "w: ") || !strings.Contains(text, ", expected ") {
					t.Errorf("message %q", text)
				}
			}
		})
	}
}

func TestFaultsOfAnOptimizer(t *testing.T) {
	sorted := func() *Codebook {
		var c Codebook
		for i := range c {
			c[i] = float32(i)/127.5 - 1
		}
		return &c
	}
	for _, v := range []struct {
		name   string
		change func(o *Optimizer)
		want   string
	}{
		{"valid", func(o *Optimizer) {}, ""},
		{"no codebook", func(o *Optimizer) { o.Codebook = nil }, "the codebook is none"},
		{"codebook out of order", func(o *Optimizer) { o.Codebook[7] = 0.9 }, "codeword 8 is"},
		{"endless codeword", func(o *Optimizer) { o.Codebook[255] = float32(math.Inf(1)) }, "from -1 to +Inf"},
		{"negative step", func(o *Optimizer) { o.GlobalStep = -1 }, "global step is -1"},
		{"no such group", func(o *Optimizer) { o.Parameters[0].Group = 1 }, "w: the group is 1"},
		{"fault of a parameter", func(o *Optimizer) { o.Parameters[0].State.Step = 0 }, "w: step is 0"},
		{"negative lr", func(o *Optimizer) { o.Groups[0].LR = -1 }, "group 0: lr is -1"},
		{"beta1 of one", func(o *Optimizer) { o.Groups[0].Beta1 = 1 }, "group 0: beta1 is 1"},
		{"negative beta2", func(o *Optimizer) { o.Groups[0].Beta2 = -0.5 }, "group 0: beta2 is -0.5"},
		{"no eps", func(o *Optimizer) { o.Groups[0].Eps = 0 }, "group 0: eps is 0"},
		{"endless eps", func(o *Optimizer) { o.Groups[0].Eps = math.Inf(1) }, "group 0: eps is +Inf"},
		{"decay that is no number", func(o *Optimizer) { o.Groups[0].WeightDecay = math.NaN() }, "group 0: weight_decay is NaN"},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := &Optimizer{
				Parameters: []Parameter{validParameter(Plain)},
				Groups:     []Options{{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}},
				Codebook:   sorted(),
			}
			v.change(o)
			faults := o.Validate()
			switch {
			case v.want == "" && len(faults) > 0:
				t.Error(faults)
			case v.want != "" && (len(faults) != 1 || !strings.Contains(faults[0].Error(), v.want)):
				t.Errorf("faults %v, expected %s", faults, v.want)
			}
		})
	}
}
