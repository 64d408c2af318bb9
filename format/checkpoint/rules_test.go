package checkpoint

import (
	"strings"
	"testing"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

func zeros(d tensor.DType, shape ...int64) *tensor.Tensor {
	n, _ := tensor.Volume(shape)
	return tensor.FromBytes(d, shape, make([]byte, n*int64(d.Size())))
}

// sound is the state of a (3, 4) shard in blocks of 2, as plain Gefen writes it.
func sound() *pickle.Dict {
	return pickle.NewDict(KeyName, "w", KeyPeriod, int64(2), KeyStep, int64(5), KeyIndex, zeros(tensor.Uint8, 6, 2),
		KeyMagnitude, zeros(tensor.Float32, 6, 1), KeyVmean, zeros(tensor.Float32, 6, 1), KeyVmeanStep, int64(5))
}

// with is a copy of d with keys set, or, for no value, deleted.
func with(d *pickle.Dict, items ...pickle.Value) *pickle.Dict {
	for i := 0; i < len(items); i += 2 {
		if items[i+1] == gone {
			d.Delete(items[i])
		} else {
			d.Set(items[i], items[i+1])
		}
	}
	return d
}

// gone deletes a key.
var gone = &pickle.Tuple{}

func counter(v float32) *tensor.Tensor { return tensor.FromFloat32s([]int64{}, []float32{v}) }

func factored(items ...pickle.Value) *pickle.Dict {
	d := with(sound(), KeyVmean, gone, KeyVmeanStep, gone, KeyVRow, zeros(tensor.Float32, 6), KeyVCol, zeros(tensor.Float32, 4), KeyFactoredStep, int64(5))
	return with(d, items...)
}

func muon(items ...pickle.Value) *pickle.Dict {
	d := with(sound(), KeyVmean, gone, KeyVmeanStep, gone, KeyNormuonV, zeros(tensor.Float32, 3, 1), KeyNormuonStep, int64(5))
	return with(d, items...)
}

func TestStateRules(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range []struct {
		rule, name string
		state      *pickle.Dict
		mode       string // sharded_mode
		says       string // "": nothing is wrong
		warns      bool
	}{
		{"", "as it is written", sound(), "", "", false},
		{"", "fresh", pickle.NewDict(KeyName, "w"), "", "", false},
		{"", "factored", factored(), "", "", false},
		{"", "both second moments", factored(KeyVmean, zeros(tensor.Float32, 6, 1), KeyVmeanStep, int64(1)), "", "", false},
		{"", "NorMuon", muon(), ModeApprox, "", false},
		{"", "Muon without NorMuon", muon(KeyNormuonV, gone, KeyNormuonStep, gone), ModeApprox, "", false},
		{"", "capturable", with(sound(), KeyStep, counter(5), KeyVmeanStep, tensor.FromFloat32s([]int64{1}, []float32{5})), "", "", false},
		{"", "None for what is absent", with(sound(), KeyVRow, nil, KeyVCol, nil), "", "", false},
		{"", "before there was vmean_step", with(sound(), KeyVmeanStep, gone), "", "", false},

		{"S3", "step is a float", with(sound(), KeyStep, 5.0), "", "step: the counter is 5", false},
		{"S3", "step is True", with(sound(), KeyStep, true), "", "step: the counter is True", false},
		{"S3", "step below 0", with(sound(), KeyStep, int64(-1)), "", "step: the counter is -1", false},
		{"S3", "step is a tensor of half", with(sound(), KeyStep, counter(2.5)), "", "step: the counter is a float32 tensor of 2.5", false},
		{"S3", "step is a tensor of two", with(sound(), KeyStep, zeros(tensor.Float32, 2)), "", "step: a tensor of [2]", false},
		{"S3", "step is a bool tensor", with(sound(), KeyStep, tensor.FromBytes(tensor.Bool, []int64{}, []byte{1})), "", "step: the counter is a bool tensor", false},
		{"S4", "period is True", with(sound(), KeyPeriod, true), "", "automatic_period: the period is True", false},
		{"S4", "period is 0", with(sound(), KeyPeriod, int64(0)), "", "automatic_period: the period is 0", false},
		{"S4", "period is a tensor", with(sound(), KeyPeriod, tensor.FromInt64(2)), "", "automatic_period: the period is a tensor", false},
		{"S4", "period does not divide", with(sound(), KeyPeriod, int64(5)), "", "the period is 5, which does not divide the 12 elements", false},
		{"S5", "counters alone", pickle.NewDict(KeyName, "w", KeyStep, int64(1)), "", "no momentum", false},
		{"S5", "second moment alone", pickle.NewDict(KeyName, "w", KeyVmean, zeros(tensor.Float32, 6, 1)), "", "no momentum", false},
		{"S6", "period alone", pickle.NewDict(KeyName, "w", KeyPeriod, int64(2)), "", "there is a period, and no momentum", false},
		{"S6", "period alone in mode distributed", pickle.NewDict(KeyName, "w", KeyPeriod, int64(2)), ModeDistributed, "", false},
		{"S7", "no magnitude", with(sound(), KeyMagnitude, gone), "", "has only some of them", false},
		{"S7", "no period", with(sound(), KeyPeriod, gone), "", "has only some of them", false},
		{"S7", "step 0", with(sound(), KeyStep, int64(0)), "", "momentum at step 0", false},
		{"S7", "no step", with(sound(), KeyStep, gone), "", "momentum at step 0", false},
		{"S8", "index of another shape", with(sound(), KeyIndex, zeros(tensor.Uint8, 2, 6)), "", "m_codebook: it is uint8 [2 6], expected uint8 [6 2]", false},
		{"S8", "index of int8", with(sound(), KeyIndex, zeros(tensor.Int8, 6, 2)), "", "m_codebook: it is int8", false},
		{"S8", "index no tensor", with(sound(), KeyIndex, "x"), "", "m_codebook: it is \"x\", expected a tensor", false},
		{"S9", "magnitude of bfloat16", with(sound(), KeyMagnitude, zeros(tensor.BFloat16, 6, 1)), "", "m_magnitude: it is bfloat16", false},
		{"S9", "magnitude of one dimension", with(sound(), KeyMagnitude, zeros(tensor.Float32, 6)), "", "m_magnitude: it is float32 [6]", false},
		{"S10", "vmean of another length", with(sound(), KeyVmean, zeros(tensor.Float32, 12, 1)), "", "vmean: it is float32 [12 1]", false},
		{"S11", "vmean_step alone", factored(KeyVmeanStep, int64(2)), "", "a second moment that is not there", false},
		{"S12", "no second moment", with(sound(), KeyVmean, gone, KeyVmeanStep, gone), "", "no second moment", false},
		{"S12", "vmean_step 0", with(sound(), KeyVmeanStep, int64(0)), "", "vmean_step: it is 0", false},
		{"S12", "factored_step 0", factored(KeyFactoredStep, int64(0)), "", "factored_step: it is 0", false},
		{"S13", "v_row without v_col", factored(KeyVCol, gone), "", "v_row, v_col and factored_step come together", false},
		{"S13", "no factored_step", factored(KeyFactoredStep, gone), "", "v_row, v_col and factored_step come together", false},
		{"S14", "v_row of the shard's rows", factored(KeyVRow, zeros(tensor.Float32, 3)), "", "v_row: it is float32 [3], expected float32 [6]", false},
		{"S14", "v_col of bfloat16", factored(KeyVCol, zeros(tensor.BFloat16, 4)), "", "v_col: it is bfloat16", false},
		{"S15", "NorMuon in plain Gefen", with(sound(), KeyNormuonV, zeros(tensor.Float32, 3, 1), KeyNormuonStep, int64(1)), "", "not GefenMuon's", false},
		{"S15", "normuon_v alone", muon(KeyNormuonStep, gone), ModeApprox, "come together", false},
		{"S15", "normuon_v of all rows", muon(KeyNormuonV, zeros(tensor.Float32, 6, 1)), ModeApprox, "normuon_v: it is float32 [6 1], expected float32 [3 1]", false},
		{"S15", "normuon_step 0", muon(KeyNormuonStep, int64(0)), ModeApprox, "normuon_step: it is 0", false},
		{"W1", "step past the optimizer's", with(sound(), KeyStep, int64(6)), "", "step: the parameter has taken 6 steps, and the optimizer 5", true},
		{"W1", "vmean_step past step", with(sound(), KeyVmeanStep, int64(6)), "", "vmean_step: it is 6", true},
		{"", "a key of no optimizer", with(sound(), "stepsize", 1.0), "", "stepsize: no optimizer of Gefen-X writes this key", true},
		{"", "a float32 counter that is full", with(sound(), KeyStep, counter(1<<24)), "", "can count no further", true},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			tested[c.rule] = true
			cp := &Checkpoint{Form: Compact, GlobalStep: 5}
			p := &Param{Name: "w", Shape: []int64{6, 4}, Placement: Placement{Type: "Shard"}, ShardedMode: c.mode}
			s := &Shard{LocalShape: []int64{3, 4}}
			if p.Whole() {
				s.LocalShape = p.Shape
			}
			s.State = cp.ReadState(c.state, "w")
			cp.CheckState(p, s, "w")
			faults, others := cp.Faults, cp.Warnings
			if c.warns {
				faults, others = others, faults
			}
			if c.says == "" && len(faults)+len(others) == 0 {
				return
			}
			if !mentions(faults, c.says) || !c.warns && len(others) > 0 {
				t.Errorf("faults %v, warnings %v; want %q", cp.Faults, cp.Warnings, c.says)
			}
		})
	}
	for _, rule := range stateRules {
		if !tested[rule.number] {
			t.Errorf("no case breaks rule %s", rule.number)
		}
	}
}

// mentions says whether some fault has the text.
func mentions(faults []*fault.Error, text string) bool {
	for _, f := range faults {
		if text != "" && strings.Contains(f.Item+": "+f.Message, text) {
			return true
		}
	}
	return false
}

// In GefenMuon's exact and distributed modes a state is of the whole matrix,
// whatever rows the rank holds.
func TestStatesOfTheWhole(t *testing.T) {
	for mode, blocks := range map[string]int64{ModeApprox: 6, ModeExact: 12, ModeDistributed: 12} {
		rows := blocks / 2
		cp := &Checkpoint{Form: Compact, GlobalStep: 5}
		p := &Param{Name: "w", Shape: []int64{6, 4}, Placement: Placement{Type: "Shard"}, ShardedMode: mode}
		s := &Shard{LocalShape: []int64{3, 4}}
		s.State = cp.ReadState(muon(KeyIndex, zeros(tensor.Uint8, blocks, 2), KeyMagnitude, zeros(tensor.Float32, blocks, 1),
			KeyNormuonV, zeros(tensor.Float32, rows, 1)), "w")
		cp.CheckState(p, s, "w")
		if len(cp.Faults) > 0 {
			t.Errorf("%s: %v", mode, cp.Faults)
		}
	}
}

func TestCheckCodebook(t *testing.T) {
	book := func(change func(b []float32)) *tensor.Tensor {
		b := make([]float32, Codewords)
		for i := range b {
			b[i] = float32(i)/127.5 - 1
		}
		change(b)
		return tensor.FromFloat32s([]int64{Codewords}, b)
	}
	nan := float32(0)
	nan /= nan
	momentum := []Shard{{State: &State{Index: zeros(tensor.Uint8, 1, 1)}}}
	for name, c := range map[string]struct {
		rank Rank
		says string
	}{
		"sound":          {Rank{Codebook: book(func([]float32) {}), Shards: momentum}, ""},
		"repeated":       {Rank{Codebook: book(func(b []float32) { b[9] = b[8] }), Shards: momentum}, ""},
		"none, no state": {Rank{Shards: make([]Shard, 1)}, ""},
		"none":           {Rank{Shards: momentum}, "no codebook"},
		"no order":       {Rank{Codebook: book(func(b []float32) { b[9] = b[11] }), Shards: momentum}, "codeword 10 is"},
		"NaN":            {Rank{Codebook: book(func(b []float32) { b[9] = nan }), Shards: momentum}, "codeword 9 is NaN"},
		"no -1":          {Rank{Codebook: book(func(b []float32) { b[0] = -0.999 }), Shards: momentum}, "reaches from -0.999"},
		"no +1":          {Rank{Codebook: book(func(b []float32) { b[255] = 2 }), Shards: momentum}, "to 2, expected"},
		"too short":      {Rank{Codebook: zeros(tensor.Float32, 255), Shards: momentum}, "float32 [255]"},
		"another type":   {Rank{Codebook: zeros(tensor.Float64, Codewords), Shards: momentum}, "float64 [256]"},
	} {
		t.Run(name, func(t *testing.T) {
			cp := &Checkpoint{}
			cp.CheckCodebook(&c.rank, "codebook")
			if c.says == "" && len(cp.Faults) > 0 || c.says != "" && !mentions(cp.Faults, c.says) {
				t.Errorf("%v; want %q", cp.Faults, c.says)
			}
		})
	}
}

func TestReadGroup(t *testing.T) {
	sound := func() *pickle.Dict {
		return pickle.NewDict("lr", 0.1, "beta1", 0.9, "beta2", 0.99, "eps", 1e-8, "weight_decay", 0.0)
	}
	for name, c := range map[string]struct {
		fields *pickle.Dict
		says   string
	}{
		"sound":               {sound(), ""},
		"lr is a tensor":      {with(sound(), "lr", counter(0.5)), ""},
		"lr is an integer":    {with(sound(), "lr", int64(0)), ""},
		"no lr":               {with(sound(), "lr", gone), "no lr"},
		"no eps":              {with(sound(), "eps", gone), ""},
		"lr below 0":          {with(sound(), "lr", -0.1), "lr: -0.1"},
		"lr no number":        {with(sound(), "lr", "x"), "lr: \"x\""},
		"beta1 of 1":          {with(sound(), "beta1", 1.0), "beta1: 1"},
		"beta2 below 0":       {with(sound(), "beta2", -0.5), "beta2: -0.5"},
		"eps of 0":            {with(sound(), "eps", 0.0), "eps: 0"},
		"weight_decay below":  {with(sound(), "weight_decay", -1.0), "weight_decay: -1"},
		"weight_decay is two": {with(sound(), "weight_decay", zeros(tensor.Float32, 2)), "weight_decay: a tensor of [2]"},
	} {
		t.Run(name, func(t *testing.T) {
			cp := &Checkpoint{}
			g := cp.ReadGroup(c.fields, nil, "group")
			if c.says == "" && len(cp.Faults) > 0 || c.says != "" && !mentions(cp.Faults, c.says) {
				t.Errorf("%v; want %q", cp.Faults, c.says)
			}
			if c.says == "" && (g.Beta1 != 0.9 || g.Beta2 != 0.99) {
				t.Errorf("%+v", g)
			}
		})
	}
}

func TestChunkRows(t *testing.T) {
	for _, c := range []struct {
		rows  int64
		world int
		want  []int64 // rows of each rank
	}{
		{5, 4, []int64{2, 2, 1, 0}},
		{1, 4, []int64{1, 0, 0, 0}},
		{0, 3, []int64{0, 0, 0}},
		{7, 1, []int64{7}},
		{12, 3, []int64{4, 4, 4}},
		{13, 5, []int64{3, 3, 3, 3, 1}},
	} {
		next := int64(0)
		for rank, want := range c.want {
			row, n := ChunkRows(c.rows, c.world, rank)
			if row != next || n != want {
				t.Errorf("%d rows, rank %d of %d: [%d, +%d), want [%d, +%d)", c.rows, rank, c.world, row, n, next, want)
			}
			next += n
		}
		if next != c.rows {
			t.Errorf("%d of %d rows", next, c.rows)
		}
	}
	if row, n := ChunkRows(1<<61, 1<<20, 1<<20-1); row+n != 1<<61 {
		t.Errorf("[%d, +%d)", row, n)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	c := &Checkpoint{}
	for range 3 * mostFaults {
		c.Fault(fault.Corrupt, "item", "broken")
	}
	if n := len(c.Faults); n != mostFaults+1 || !strings.Contains(c.Faults[n-1].Message, "more follow") {
		t.Errorf("%d faults, the last %v", n, c.Faults[n-1])
	}
}
