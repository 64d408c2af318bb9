package gefen

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"
)

// recording is one run of the reference, by one entry of RUNS in
// testdata/make_replays.py: how it was made and digests of what each rank held after
// every step. Parameters and gradients are synthetic.
type recording struct {
	Name    string
	Shapes  [][]int64
	Steps   int
	World   int
	Dtype   string
	Options []struct {
		LR          *float64
		Betas       *[2]float64
		Eps         *float64
		WeightDecay float64 `json:"weight_decay"`
	}
	Policy struct {
		Force1D      bool     `json:"force_1d_period_one"`
		Force2D      bool     `json:"force_2d_period_one"`
		Substrings   []string `json:"period_one_substrings"`
		RefreshEvery int64    `json:"codebook_refresh_every"`
	}
	Factored *bool
	Toggles  []bool    // factored, per step
	TensorLR []float64 `json:"tensor_lr"`
	Legacy   int       // before this step vmean loses its counter
	Missing  [][]int   // parameters without a gradient, per step
	Scales   []float32 // of the gradients, per step
	Plain    []int     // parameters that are not sharded
	Ranks    []struct {
		LocalShapes [][]int64 `json:"local_shapes"`
		Steps       []struct {
			Codebook *string
			After    []map[string]any // digests of tensors, and counters
		}
	}
}

// splitmix is a 64-bit hash.
func splitmix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// synthetic makes rows [row, row+rows) of values of a bell shape, times scale,
// times a factor per row that is 0 in one of 16 rows. Every operation is exact or one
// rounding, so that Python makes the same.
func synthetic(key uint64, row, rows, cols int64, scale float32) []float32 {
	start := splitmix(key)
	out := make([]float32, rows*cols)
	for i := range rows {
		r := splitmix(^start + uint64(row+i))
		factor := float32(math.Ldexp(1+float64(r&0xffff)/65536, -int(r>>16&7)))
		if r>>20&15 == 0 {
			factor = 0
		}
		factor *= scale
		for j := range cols {
			z := splitmix(start + uint64((row+i)*cols+j))
			total := int64(z&0xffff+z>>16&0xffff+z>>32&0xffff+z>>48) - 2*65535
			out[i*cols+j] = float32(total) * factor * 0x1p-16
		}
	}
	return out
}

func digestBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// digest is of values as the reference holds them in the type.
func digest(d DType, x []float32) string {
	var b []byte
	for _, v := range x {
		if d == BFloat16 {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return digestBytes(b)
}

// held is what the reference would record of p.
func held(p *Parameter) map[string]any {
	s := &p.State
	out := map[string]any{"param": digest(p.DType, p.Values)}
	if s.Index != nil {
		out["m_codebook"] = digestBytes(s.Index)
		out["m_magnitude"] = digest(Float32, s.Magnitude)
		out["automatic_period"] = float64(s.Period)
		out["step"] = float64(s.Step)
	}
	if s.Vmean != nil {
		out["vmean"] = digest(Float32, s.Vmean)
		out["vmean_step"] = float64(s.VmeanStep)
	}
	if s.Row != nil {
		out["v_row"], out["v_col"] = digest(Float32, s.Row), digest(Float32, s.Col)
		out["factored_step"] = float64(s.FactoredStep)
	}
	return out
}

// optimizer is the optimizer of one rank at the start of the run, and the first row
// of each of its parameters.
func (r *recording) optimizer(t *testing.T, run, rank int) (o *Optimizer, rows []int64) {
	t.Helper()
	d := Float32
	if r.Dtype == "bf16" {
		d = BFloat16
	}
	o = &Optimizer{
		Policy: Policy{
			PeriodRule:           PeriodRule{Force1D: r.Policy.Force1D, Force2D: r.Policy.Force2D, Substrings: r.Policy.Substrings},
			FactoredV2D:          r.Factored == nil || *r.Factored,
			CodebookRefreshEvery: r.Policy.RefreshEvery,
		},
		Workers: 2,
	}
	for _, given := range r.Options {
		group := Options{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: given.WeightDecay}
		if given.LR != nil {
			group.LR = *given.LR
		}
		if given.Betas != nil {
			group.Beta1, group.Beta2 = given.Betas[0], given.Betas[1]
		}
		if given.Eps != nil {
			group.Eps = *given.Eps
		}
		o.Groups = append(o.Groups, group)
	}
	if len(o.Groups) == 0 {
		o.Groups = []Options{{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}}
	}
	for i, shape := range r.Shapes {
		row := int64(0)
		sharded := r.World > 0
		for _, p := range r.Plain {
			sharded = sharded && p != i
		}
		if sharded {
			for _, before := range r.Ranks[:rank] {
				row += before.LocalShapes[i][0]
			}
		}
		p := Parameter{
			Name: fmt.Sprintf("p%d", i), Shape: shape, Local: r.Ranks[rank].LocalShapes[i], Sharded: sharded,
			DType: d, Group: i % len(o.Groups),
		}
		p.Values = r.tensor(run, 63, i, row, &p, 0.1)
		o.Parameters, rows = append(o.Parameters, p), append(rows, row)
	}
	return o, rows
}

// tensor is the synthetic tensor of one kind for parameter i, from row on: 63 is
// its first value, and every step a gradient.
func (r *recording) tensor(run, kind, i int, row int64, p *Parameter, scale float32) []float32 {
	cols := int64(1)
	for _, d := range p.Shape[1:] {
		cols *= d
	}
	x := synthetic(uint64((run*64+kind)*64+i), row, p.Local[0], cols, scale)
	p.DType.round(x)
	return x
}

// set reports whether list has i at step k.
func set(list [][]int, k, i int) bool {
	if k < len(list) {
		for _, x := range list[k] {
			if x == i {
				return true
			}
		}
	}
	return false
}

func testRecordings(t *testing.T, file string) {
	var f struct {
		NoFMA bool `json:"no_fma"`
		Runs  []recording
	}
	readGzipJSON(t, file, &f)
	for run, r := range f.Runs {
		for rank := range r.Ranks {
			t.Run(fmt.Sprintf("%s/%d", r.Name, rank), func(t *testing.T) {
				t.Parallel()
				o, rows := r.optimizer(t, run, rank)
				o.NoFMA = f.NoFMA
				for k, want := range r.Ranks[rank].Steps {
					if r.Toggles != nil {
						o.FactoredV2D = r.Toggles[k]
					}
					if r.TensorLR != nil {
						o.Groups[0].LR = float64(float32(r.TensorLR[k]))
					}
					scale := float32(1)
					if r.Scales != nil {
						scale = r.Scales[k]
					}
					grads := make([][]float32, len(o.Parameters))
					for i := range grads {
						p := &o.Parameters[i]
						if r.Legacy == k && k > 0 {
							p.State.VmeanStep = Absent
						}
						if !set(r.Missing, k, i) {
							grads[i] = r.tensor(run, k, i, rows[i], p, scale)
						}
					}
					if err := o.Step(grads); err != nil {
						t.Fatal(err)
					}
					compareHeld(t, k+1, o, want.Codebook, want.After)
				}
			})
		}
	}
}

// compareHeld compares what o holds after a step with the reference's digests.
func compareHeld(t *testing.T, step int, o *Optimizer, codebook *string, want []map[string]any) {
	t.Helper()
	switch {
	case codebook == nil && o.Codebook != nil:
		t.Errorf("step %d: there is a codebook already", step)
	case codebook != nil && (o.Codebook == nil || digest(Float32, o.Codebook[:]) != *codebook):
		t.Errorf("step %d: the codebook differs", step)
	}
	for i := range o.Parameters {
		p := &o.Parameters[i]
		got := held(p)
		for field, v := range want[i] {
			if got[field] != v {
				t.Errorf("step %d, %s: %s is %v, expected %v", step, p.Name, field, got[field], v)
			}
			delete(got, field)
		}
		for field, v := range got {
			t.Errorf("step %d, %s: %s is %v, expected none", step, p.Name, field, v)
		}
	}
}

func TestRecordings(t *testing.T)           { testRecordings(t, "recordings.json.gz") }
func TestRecordingsWithoutFMA(t *testing.T) { testRecordings(t, "recordings-nofma.json.gz") }
