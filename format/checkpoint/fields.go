package checkpoint

import (
	"math"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// The keys of one parameter's state, as every optimizer of Gefen-X writes them.
const (
	KeyName         = "name"
	KeyPeriod       = "automatic_period"
	KeyStep         = "step"
	KeyIndex        = "m_codebook"
	KeyMagnitude    = "m_magnitude"
	KeyVmean        = "vmean"
	KeyVmeanStep    = "vmean_step"
	KeyVRow         = "v_row"
	KeyVCol         = "v_col"
	KeyFactoredStep = "factored_step"
	KeyNormuonV     = "normuon_v"
	KeyNormuonStep  = "normuon_step"
)

// ReadState reads the state dict of one parameter or shard. It returns nil for a
// fresh one, which has a name alone. Values of the wrong type are noted on c under
// item (rules S3, S4, S8 to S10, S14, S15); for the rest see CheckState.
func (c *Checkpoint) ReadState(d *pickle.Dict, item string) *State {
	s := &State{Step: Absent, VmeanStep: Absent, FactoredStep: Absent, NormuonStep: Absent}
	fresh := true
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		if key == KeyName {
			continue
		}
		value, err := tree.Resolve(p.Value)
		if err == nil {
			if value == nil {
				continue // as good as not there
			}
			err = c.readField(s, key, p.Key, value, item)
		}
		fresh = false
		if err != nil {
			c.FaultErr(err, item+"."+tree.Name(p.Key))
		}
	}
	if fresh {
		return nil
	}
	return s
}

func (c *Checkpoint) readField(s *State, name string, key, value pickle.Value, item string) error {
	if name == KeyPeriod {
		n, ok := value.(int64)
		if !ok || n < 1 {
			return fault.New(fault.Corrupt, "the period is %s, expected an integer of at least 1", tree.Describe(value))
		}
		s.Period = n
		return nil
	}
	if counter := s.counter(name); counter != nil {
		n, err := Counter(value)
		if err != nil {
			return err
		}
		if t, ok := value.(*tensor.Tensor); ok && t.DType == tensor.Float32 && n >= 1<<24 {
			c.Warn(item+"."+name, "a float32 counter at %d can count no further", n)
		}
		*counter = n
		return nil
	}
	if plane := s.plane(name); plane != nil {
		t, ok := value.(*tensor.Tensor)
		if !ok {
			return fault.New(fault.Corrupt, "it is %s, expected a tensor", tree.Describe(value))
		}
		*plane = t
		return nil
	}
	if s.Extra == nil {
		s.Extra = &pickle.Dict{}
	}
	s.Extra.Set(key, value)
	c.Warn(item+"."+tree.Name(key), "no optimizer of Gefen-X writes this key; it is carried along where the shard survives whole")
	return nil
}

// counter is the field of a counter's key; nil for other keys.
func (s *State) counter(key string) *int64 {
	switch key {
	case KeyStep:
		return &s.Step
	case KeyVmeanStep:
		return &s.VmeanStep
	case KeyFactoredStep:
		return &s.FactoredStep
	case KeyNormuonStep:
		return &s.NormuonStep
	}
	return nil
}

// plane is the field of a tensor's key; nil for other keys.
func (s *State) plane(key string) **tensor.Tensor {
	switch key {
	case KeyIndex:
		return &s.Index
	case KeyMagnitude:
		return &s.Magnitude
	case KeyVmean:
		return &s.Vmean
	case KeyVRow:
		return &s.VRow
	case KeyVCol:
		return &s.VCol
	case KeyNormuonV:
		return &s.NormuonV
	}
	return nil
}

// Counter reads a step counter: an integer, or a tensor of one finite integral
// element, as capturable=True writes it.
func Counter(v pickle.Value) (int64, error) {
	switch v := v.(type) {
	case int64:
		if v < 0 {
			return 0, fault.New(fault.Corrupt, "the counter is %d, expected at least 0", v)
		}
		return v, nil
	case *tensor.Tensor:
		x, err := v.Scalar()
		if err != nil {
			return 0, err
		}
		if !(x >= 0 && x <= 1<<53) || x != math.Trunc(x) || v.DType == tensor.Bool {
			return 0, fault.New(fault.Corrupt, "the counter is a %s tensor of %v, expected an integer of at least 0", v.DType, x)
		}
		return int64(x), nil
	}
	return 0, fault.New(fault.Corrupt, "the counter is %s, expected an integer", tree.Describe(v))
}

// Number reads a hyperparameter: a float, an integer, or a tensor of one element.
func Number(v pickle.Value) (float64, error) {
	v, err := tree.Resolve(v)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case float64:
		return v, nil
	case int64:
		return float64(v), nil
	case *tensor.Tensor:
		return v.Scalar()
	}
	return 0, fault.New(fault.Corrupt, "%s, expected a number", tree.Describe(v))
}

// hyperparameters with the range that a loader demands.
var hyperparameters = []struct {
	key      string
	field    func(*Group) *float64
	ok       func(float64) bool
	expected string
}{
	{"lr", func(g *Group) *float64 { return &g.LR }, nonNegative, "at least 0"},
	{"beta1", func(g *Group) *float64 { return &g.Beta1 }, fraction, "within [0, 1)"},
	{"beta2", func(g *Group) *float64 { return &g.Beta2 }, fraction, "within [0, 1)"},
	{"eps", func(g *Group) *float64 { return &g.Eps }, func(x float64) bool { return x > 0 && !math.IsInf(x, 1) }, "above 0 and finite"},
	{"weight_decay", func(g *Group) *float64 { return &g.WeightDecay }, nonNegative, "at least 0"},
}

func nonNegative(x float64) bool { return x >= 0 }
func fraction(x float64) bool    { return x >= 0 && x < 1 }

// ReadGroup reads the hyperparameters of a group: rules G1 (ranges) and G2 (lr is
// there) of docs/rules.md. Of the others a loader keeps its own where they are
// missing.
func (c *Checkpoint) ReadGroup(fields *pickle.Dict, params []int, item string) Group {
	g := Group{Fields: fields, Params: params}
	for _, h := range hyperparameters {
		v, ok := fields.Get(h.key)
		if !ok {
			if h.key == "lr" {
				c.Fault(fault.Corrupt, item, "the group has no lr")
			}
			continue
		}
		x, err := Number(v)
		if err != nil {
			c.FaultErr(err, item+"."+h.key)
			continue
		}
		if !h.ok(x) {
			c.Fault(fault.Corrupt, item+"."+h.key, "%v, expected a number %s", x, h.expected)
		}
		*h.field(&g) = x
	}
	return g
}

// Dict is the state dict of a parameter with this state, in the order in which
// Gefen-X writes its keys; of a fresh one, for a nil state, the name alone.
func (s *State) Dict(name string) *pickle.Dict {
	d := pickle.NewDict(KeyName, name)
	if s == nil {
		return d
	}
	count := func(key string, n int64) {
		if n != Absent {
			d.Set(key, n)
		}
	}
	plane := func(key string, t *tensor.Tensor) {
		if t != nil {
			d.Set(key, t)
		}
	}
	if s.Period > 0 {
		d.Set(KeyPeriod, s.Period)
	}
	count(KeyStep, s.Step)
	plane(KeyIndex, s.Index)
	plane(KeyMagnitude, s.Magnitude)
	plane(KeyVmean, s.Vmean)
	count(KeyVmeanStep, s.VmeanStep)
	plane(KeyVRow, s.VRow)
	plane(KeyVCol, s.VCol)
	count(KeyFactoredStep, s.FactoredStep)
	plane(KeyNormuonV, s.NormuonV)
	count(KeyNormuonStep, s.NormuonStep)
	if s.Extra != nil {
		for _, p := range s.Extra.Pairs {
			d.Set(p.Key, p.Value)
		}
	}
	return d
}
