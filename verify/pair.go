package verify

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gefenckpt/format"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Options steer Pair. Tolerances are relative L2 differences; negative ones are
// found by rule.
type Options struct {
	Key   string
	Steps int    // of the continuation; 0 leaves it out
	Seed  uint64 // of its gradients
	Only  []string

	Momentum, SecondMoment, Update float64
}

// The rules that tolerances come from.
const (
	ruleExact    = "exact"
	ruleManifest = "manifest"
	ruleNoise    = "noise"
)

// manifestSlack is how far a measured error may pass the predicted one.
const manifestSlack = 1.01

// secondNoise is the tolerance of the second moment where nothing is known: what
// averaging equal values in float32 may lose.
const secondNoise = 1e-6

// Pair checks whether dst means what src does, and whether training continues
// alike from both.
func Pair(ctx context.Context, src, dst string, o Options) (*Report, error) {
	a, err := openWhole(src, o.Key)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := openWhole(dst, "")
	if err != nil {
		return nil, err
	}
	defer b.Close()
	v := &pair{o: o, src: a, dst: b, r: &Report{Level: "faithful", Parameters: []Parameter{}}}
	v.r.Warnings = append(v.r.Warnings, b.Warnings...)
	m, err := manifest.Read(dst)
	if err != nil {
		return nil, err
	}
	v.takeManifest(m)
	v.names()
	v.groups()
	v.carried()
	if len(v.r.Faults) > 0 {
		return v.r.finish(), nil
	}
	if err := v.states(ctx); err != nil {
		return nil, err
	}
	return v.r.finish(), nil
}

// openWhole opens a checkpoint that has no faults.
func openWhole(path, key string) (*checkpoint.Checkpoint, error) {
	c, err := format.Open(path, format.Options{Key: key})
	if err != nil && c != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err != nil {
		return nil, err
	}
	if len(c.Halves) > 0 {
		return nil, errors.Join(fault.New(fault.Unsupported, "a GefenMuonHybrid has two optimizers").File(path).
			WithHint("verify its halves one by one, with --key"), c.Close())
	}
	return c, nil
}

// pair is a comparison at work.
type pair struct {
	o        Options
	src, dst *checkpoint.Checkpoint
	r        *Report
	to       []int                 // by parameter of src, its number in dst
	planned  map[string][2]float64 // momentum and second moment, by parameter

	srcQ, dstQ *quantizers
}

// takeManifest takes the predicted errors, if the manifest is of this pair.
func (v *pair) takeManifest(m *manifest.Manifest) {
	if m == nil || m.Source.Path != filepath.Base(v.src.Path) {
		return
	}
	v.planned = map[string][2]float64{}
	for _, p := range m.Result.Parameters {
		var worst [2]float64
		for _, s := range p.Ranks {
			worst[0], worst[1] = max(worst[0], s.MomentumRelL2), max(worst[1], s.SecondMomentRelL2)
		}
		v.planned[p.Name] = worst
	}
}

// names pairs the parameters up: by name, with equal shapes and groups.
func (v *pair) names() {
	at := map[string]int{}
	for i, p := range v.dst.Params {
		at[p.Name] = i
	}
	v.to = make([]int, len(v.src.Params))
	for i, p := range v.src.Params {
		j, ok := at[p.Name]
		if !ok {
			v.r.fail(fault.Unfaithful, v.dst.Path, p.Name, "the parameter is missing")
			continue
		}
		delete(at, p.Name)
		v.to[i] = j
		q := &v.dst.Params[j]
		// A native state has no shapes of its own.
		if v.src.Form != checkpoint.Native && v.dst.Form != checkpoint.Native && !slices.Equal(p.Shape, q.Shape) {
			v.r.fail(fault.Unfaithful, v.dst.Path, p.Name, "its shape is %v, expected %v", q.Shape, p.Shape)
		}
		if p.Group != q.Group {
			v.r.fail(fault.Unfaithful, v.dst.Path, p.Name, "it is in group %d, expected %d", q.Group, p.Group)
		}
		a, b := stepsOf(v.src, i), stepsOf(v.dst, j)
		if a != b {
			v.r.fail(fault.Unfaithful, v.dst.Path, p.Name, "its step and vmean_step are %v, expected %v", b, a)
		}
	}
	for name := range at {
		v.r.fail(fault.Unfaithful, v.dst.Path, name, "the parameter is not in the source")
	}
	if v.src.GlobalStep != v.dst.GlobalStep {
		v.r.fail(fault.Unfaithful, v.dst.Path, "global_step", "%d, expected %d", v.dst.GlobalStep, v.src.GlobalStep)
	}
}

// stepsOf are the largest counters of a parameter over its shards; zeros for a
// fresh one.
func stepsOf(c *checkpoint.Checkpoint, p int) [2]int64 {
	if p < len(c.Slots) {
		return [2]int64{c.Slots[p].Step, c.Slots[p].VmeanStep}
	}
	var out [2]int64
	for _, rank := range c.Ranks {
		s := rank.Shards[p].State
		if s == nil || s.Index == nil {
			continue
		}
		second := max(s.VmeanStep, s.FactoredStep)
		if second == checkpoint.Absent {
			second = s.Step
		}
		out[0], out[1] = max(out[0], s.Step), max(out[1], second)
	}
	return out
}

// groups compares the hyperparameters.
func (v *pair) groups() {
	if len(v.src.Groups) != len(v.dst.Groups) {
		v.r.fail(fault.Unfaithful, v.dst.Path, "param_groups", "%d groups, expected %d", len(v.dst.Groups), len(v.src.Groups))
		return
	}
	for g := range v.src.Groups {
		a, b := &v.src.Groups[g], &v.dst.Groups[g]
		for _, h := range []struct {
			name string
			x, y float64
		}{{"lr", a.LR, b.LR}, {"beta1", a.Beta1, b.Beta1}, {"beta2", a.Beta2, b.Beta2}, {"eps", a.Eps, b.Eps}, {"weight_decay", a.WeightDecay, b.WeightDecay}} {
			if h.x != h.y {
				v.r.fail(fault.Unfaithful, v.dst.Path, "param_groups."+strconv.Itoa(g)+"."+h.name, "%v, expected %v", h.y, h.x)
			}
		}
	}
}

// carried compares what lies beside the optimizer's state, value by value and
// byte by byte.
func (v *pair) carried() {
	for _, e := range v.src.Beside() {
		path := tree.Keys(e.Path)
		a, err := lookup(v.src.Root, e.Path)
		if err != nil {
			v.r.Faults = append(v.r.Faults, fault.Of(err).In(e.Path).File(v.src.Path))
			continue
		}
		b, err := lookup(v.dst.Root, e.Path)
		if err != nil {
			v.r.fail(fault.Unfaithful, v.dst.Path, e.Path, "it was not carried over")
			continue
		}
		if diff, err := firstDifference(a, b, path.String()); err != nil {
			v.r.Faults = append(v.r.Faults, fault.Of(err).In(e.Path).File(v.dst.Path))
		} else if diff != "" {
			v.r.fail(fault.Unfaithful, v.dst.Path, diff, "it differs from the source's")
		}
	}
}

// lookup finds an entry by its dotted path, whose parts may have dots.
func lookup(root pickle.Value, path string) (pickle.Value, error) {
	if v, ok := tree.Child(root, path); ok {
		return tree.Resolve(v)
	}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != '.' {
			continue
		}
		if v, ok := tree.Child(root, path[:i]); ok {
			v, err := tree.Resolve(v)
			if err != nil {
				return nil, err
			}
			return lookup(v, path[i+1:])
		}
	}
	return nil, fault.New(fault.Incomplete, "there is no such entry")
}

// states compares the dense state of every parameter, and carries both on.
func (v *pair) states(ctx context.Context) error {
	var all planes
	var steps []stepSums
	var noise noiseSums
	v.r.Rule = v.rule()
	for p := range v.src.Params {
		if !matches(v.src.Params[p].Name, v.o.Only) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name := v.src.Params[p].Name
		a, err := moments.OfParameter(v.src, p)
		if err != nil {
			return fault.Within(err, v.src.Path, name)
		}
		b, err := moments.OfParameter(v.dst, v.to[p])
		if err != nil {
			return fault.Within(err, v.dst.Path, name)
		}
		if a.Len() != b.Len() {
			v.r.fail(fault.Unfaithful, v.dst.Path, name, "%d elements, expected %d", b.Len(), a.Len())
			continue
		}
		one, err := comparePlanes(b, a)
		if err != nil {
			return err
		}
		cont, err := v.carryOn(ctx, p)
		if err != nil {
			return err
		}
		v.judge(name, one, cont)
		all.momentum.merge(one.momentum)
		all.second.merge(one.second)
		noise.merge(cont.noise)
		steps = mergeSteps(steps, cont.steps)
	}
	v.total(all, steps, noise)
	return nil
}

// rule is where tolerances come from: see Options.
func (v *pair) rule() string {
	switch {
	case v.planned != nil:
		return ruleManifest
	case v.src.Form == v.dst.Form && v.src.World == v.dst.World || v.dst.Form == checkpoint.Dense:
		return ruleExact
	}
	return ruleNoise
}

// allowed are the tolerances of one parameter.
func (v *pair) allowed(name string, noise noiseSums) Figures {
	f := Figures{Momentum: 2 * noise.relative(), SecondMoment: secondNoise, Update: -1}
	switch v.r.Rule {
	case ruleExact:
		f = Figures{Update: -1}
	case ruleManifest:
		planned := v.planned[name]
		f = Figures{Momentum: manifestSlack * planned[0], SecondMoment: manifestSlack * planned[1], Update: -1}
	}
	for _, given := range []struct {
		option float64
		to     *float64
	}{{v.o.Momentum, &f.Momentum}, {v.o.SecondMoment, &f.SecondMoment}, {v.o.Update, &f.Update}} {
		if given.option >= 0 {
			*given.to = given.option
		}
	}
	return f
}

// judge compares one parameter with what is allowed.
func (v *pair) judge(name string, one planes, cont continuation) {
	p := Parameter{Name: name, Momentum: one.momentum.difference(), SecondMoment: one.second.difference(), Allowed: v.allowed(name, cont.noise), OK: true}
	if n := len(cont.steps); n > 0 {
		p.Update = cont.steps[n-1].update.relative()
	}
	check := func(what string, got, allowed float64, d Difference) {
		if allowed < 0 || got <= allowed || math.IsNaN(allowed) {
			return
		}
		p.OK = false
		ratio := ""
		if allowed > 0 {
			ratio = " (" + strconv.FormatFloat(got/allowed, 'g', 3, 64) + " times)"
		}
		v.r.fail(fault.Unfaithful, v.dst.Path, name, "%s differs by %.3g (relative L2), allowed by the %s rule are %.3g%s; worst is element %d, by %.3g",
			what, got, v.r.Rule, allowed, ratio, d.Worst, d.MaxAbs)
	}
	check("momentum", p.Momentum.RelL2, p.Allowed.Momentum, p.Momentum)
	check("the second moment", p.SecondMoment.RelL2, p.Allowed.SecondMoment, p.SecondMoment)
	check("the update", p.Update, p.Allowed.Update, Difference{})
	v.r.Parameters = append(v.r.Parameters, p)
}

// total sums up all parameters.
func (v *pair) total(all planes, steps []stepSums, noise noiseSums) {
	v.r.Measured = &Figures{Momentum: all.momentum.difference().RelL2, SecondMoment: all.second.difference().RelL2, Update: -1}
	for _, s := range steps {
		v.r.Steps = append(v.r.Steps, Figures{s.momentum.difference().RelL2, s.second.difference().RelL2, s.update.relative()})
	}
	if n := len(v.r.Steps); n > 0 {
		v.r.Measured.Update = v.r.Steps[n-1].Update
	}
	allowed := Figures{Update: -1}
	for _, p := range v.r.Parameters {
		allowed.Momentum = max(allowed.Momentum, p.Allowed.Momentum)
		allowed.SecondMoment = max(allowed.SecondMoment, p.Allowed.SecondMoment)
		allowed.Update = max(allowed.Update, p.Allowed.Update)
	}
	v.r.Allowed = &allowed
}
