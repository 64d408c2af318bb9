package gefen

import (
	"fmt"
	"math"
)

// Fault is one invariant of the state that does not hold, one that keeps Gefen from
// loading it.
type Fault struct {
	Rule      string // number of the rule among those of Gefen's loader: S3 to S16
	Parameter string // empty where the fault is of no one parameter
	What      string // field of the state, by its name in a checkpoint
	Found     string
	Expected  string
}

// Error is the fault in one line.
func (f *Fault) Error() string {
	s := fmt.Sprintf("%s is %s, expected %s", f.What, f.Found, f.Expected)
	if f.Parameter != "" {
		s = f.Parameter + ": " + s
	}
	return s
}

// Validate gathers the faults of the optimizer: of its groups, of every parameter's
// state, and of its codebook.
func (o *Optimizer) Validate() []error {
	var faults []error
	if o.GlobalStep < 0 {
		faults = append(faults, &Fault{What: "the global step", Found: fmt.Sprint(o.GlobalStep), Expected: "0 or more"})
	}
	for i, g := range o.Groups {
		for _, err := range g.Validate() {
			faults = append(faults, fmt.Errorf("group %d: %w", i, err))
		}
	}
	momentum := false
	for i := range o.Parameters {
		p := &o.Parameters[i]
		if p.Group < 0 || p.Group >= len(o.Groups) {
			faults = append(faults, &Fault{
				Parameter: p.Name, What: "the group", Found: fmt.Sprint(p.Group),
				Expected: fmt.Sprintf("an index of %d groups", len(o.Groups)),
			})
		}
		momentum = momentum || p.State.Index != nil || p.State.Magnitude != nil
		faults = append(faults, p.Validate()...)
	}
	if o.Codebook == nil && momentum {
		faults = append(faults, &Fault{Rule: "S16", What: "the codebook", Found: "none", Expected: "one, as there is momentum"})
	}
	if o.Codebook != nil {
		if err := o.Codebook.Validate(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// Validate gathers the hyperparameters that Gefen would refuse.
func (g Options) Validate() []error {
	var faults []error
	for _, v := range []struct {
		what     string
		value    float64
		ok       bool
		expected string
	}{
		{"lr", g.LR, g.LR >= 0, "0 or more"},
		{"beta1", g.Beta1, g.Beta1 >= 0 && g.Beta1 < 1, "at least 0 and below 1"},
		{"beta2", g.Beta2, g.Beta2 >= 0 && g.Beta2 < 1, "at least 0 and below 1"},
		{"eps", g.Eps, g.Eps > 0 && g.Eps <= math.MaxFloat64, "positive and finite"},
		{"weight_decay", g.WeightDecay, g.WeightDecay >= 0, "0 or more"},
	} {
		if !v.ok {
			faults = append(faults, &Fault{What: v.what, Found: fmt.Sprint(v.value), Expected: v.expected})
		}
	}
	return faults
}

// validation gathers the faults of one parameter's state.
type validation struct {
	*Parameter
	shape  []int64 // of what the state is of
	n      int64   // its elements
	faults []error
}

// Validate gathers the faults of the parameter's state.
func (p *Parameter) Validate() []error {
	v := validation{Parameter: p, shape: p.held()}
	var ok bool
	if v.n, ok = elements(v.shape); !ok {
		v.fault("", "the shape", v.shape, "sizes of 0 or more, whose product fits in 64 bits")
		return v.faults
	}
	if _, ok := elements(p.Shape); !ok || len(p.Shape) != len(p.Local) {
		v.fault("", "the whole shape", p.Shape, fmt.Sprintf("one that %v is a part of", p.Local))
		return v.faults
	}
	if p.Values != nil && int64(len(p.Values)) != v.n {
		v.fault("", "the number of values", len(p.Values), fmt.Sprint(v.n))
	}
	v.counters()
	if v.period() && v.momentum() {
		v.blocks()
		v.secondMoment()
	}
	v.factored()
	v.normuon()
	return v.faults
}

func (v *validation) fault(rule, what string, found any, expected string) {
	v.faults = append(v.faults, &Fault{Rule: rule, Parameter: v.Name, What: what, Found: fmt.Sprint(found), Expected: expected})
}

// counters checks that counters are none that no step leads to.
func (v *validation) counters() {
	s := &v.State
	for _, c := range []struct {
		name  string
		value int64
		least int64
	}{
		{"step", s.Step, 0},
		{"vmean_step", s.VmeanStep, Absent},
		{"factored_step", s.FactoredStep, 0},
		{"normuon_step", s.NormuonStep, 0},
	} {
		if c.value < c.least {
			v.fault("S3", c.name, c.value, "0 or more")
		}
	}
}

// period says whether there is a block length, if any, that the rest can be told by.
func (v *validation) period() bool {
	p := int64(v.State.Period)
	if p == 0 {
		return true
	}
	if p < 0 || v.n == 0 || v.n%p != 0 {
		v.fault("S4", "automatic_period", p, fmt.Sprintf("a divisor of %d elements", v.n))
		return false
	}
	return true
}

// momentum says whether there is momentum, whole enough to check its blocks.
func (v *validation) momentum() bool {
	s := &v.State
	if s.Index == nil && s.Magnitude == nil {
		if s.Step > 0 || s.Vmean != nil || s.VmeanStep > 0 || s.Row != nil || s.Col != nil || s.FactoredStep > 0 ||
			s.NormuonV != nil || s.NormuonStep > 0 {
			v.fault("S5", "m_codebook", "absent", "indices, as there is other state")
		}
		if s.Period > 0 && !(v.Sharded && v.Mode == Distributed) {
			v.fault("S6", "automatic_period", s.Period, "none without momentum")
		}
		return false
	}
	whole := true
	for _, f := range []struct {
		what   string
		absent bool
	}{
		{"m_codebook", s.Index == nil},
		{"m_magnitude", s.Magnitude == nil},
		{"automatic_period", s.Period == 0},
	} {
		if f.absent {
			v.fault("S7", f.what, "absent", "one, as there is momentum")
			whole = false
		}
	}
	if s.Step == 0 {
		v.fault("S7", "step", s.Step, "1 or more, as there is momentum")
	}
	return whole
}

// blocks checks what is kept per block.
func (v *validation) blocks() {
	s := &v.State
	p := int64(s.Period)
	if int64(len(s.Index)) != v.n {
		v.fault("S8", "the size of m_codebook", len(s.Index), fmt.Sprintf("%d blocks of %d elements", v.n/p, p))
	}
	v.values("S9", "m_magnitude", s.Magnitude, v.n/p)
	if s.Vmean != nil {
		v.values("S10", "vmean", s.Vmean, v.n/p)
	}
}

// values checks that there are n values, finite and not negative.
func (v *validation) values(rule, what string, x []float32, n int64) {
	if int64(len(x)) != n {
		v.fault(rule, "the size of "+what, len(x), fmt.Sprint(n))
		return
	}
	for i, value := range x {
		if !(value >= 0 && value <= math.MaxFloat32) {
			v.fault(rule, fmt.Sprintf("%s[%d]", what, i), value, "a finite value of 0 or more")
			return
		}
	}
}

// secondMoment checks that a second moment, of which Gefen itself needs one, has
// an age.
func (v *validation) secondMoment() {
	s := &v.State
	if s.Vmean == nil && s.VmeanStep > 0 {
		v.fault("S11", "vmean", "absent", fmt.Sprintf("one of age %d", s.VmeanStep))
	}
	if v.Mode != Plain || s.Row != nil || s.Col != nil {
		return
	}
	switch {
	case s.Vmean == nil:
		v.fault("S12", "vmean", "absent", "a second moment, by blocks or factored")
	case s.VmeanStep == 0:
		v.fault("S12", "vmean_step", s.VmeanStep, "1 or more")
	}
}

// factored checks a factored second moment.
func (v *validation) factored() {
	s := &v.State
	if s.Row == nil && s.Col == nil {
		if s.FactoredStep > 0 {
			v.fault("S13", "v_row", "absent", fmt.Sprintf("one of age %d", s.FactoredStep))
		}
		return
	}
	if s.Row == nil || s.Col == nil {
		v.fault("S13", "one of v_row and v_col", "absent", "both or neither")
		return
	}
	if s.FactoredStep == 0 {
		v.fault("S12", "factored_step", s.FactoredStep, "1 or more")
	}
	if len(v.Shape) != 2 {
		v.fault("S14", "the shape of a factored parameter", v.Shape, "2 dimensions")
		return
	}
	v.values("S14", "v_row", s.Row, v.Shape[0])
	v.values("S14", "v_col", s.Col, v.Shape[1])
}

// normuon checks NorMuon's second moment of the rows.
func (v *validation) normuon() {
	s := &v.State
	if s.NormuonV == nil {
		if s.NormuonStep > 0 {
			v.fault("S15", "normuon_v", "absent", fmt.Sprintf("one of age %d", s.NormuonStep))
		}
		return
	}
	if v.Mode == Plain {
		v.fault("S15", "normuon_v", "present", "none outside of GefenMuon")
	}
	if s.NormuonStep == 0 {
		v.fault("S15", "normuon_step", s.NormuonStep, "1 or more")
	}
	if len(v.shape) != 2 {
		v.fault("S15", "the shape of a NorMuon parameter", v.shape, "2 dimensions")
		return
	}
	v.values("S15", "normuon_v", s.NormuonV, v.shape[0])
}
