package convert

import (
	"context"
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/dense"
	"gefenckpt/format/native"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// target makes the optimizer's subtree in the target's form.
func (j *job) target(ctx context.Context) (pickle.Value, error) {
	c := j.source
	if len(c.Halves) > 0 || c.Optimizer != checkpoint.Gefen {
		return nil, fault.New(fault.Unsupported, "the optimizer is %s: its checkpoints are inspected, not converted", c.Optimizer).
			WithHint("only plain Gefen's state is converted")
	}
	weights := findWeights(c)
	if c.Form == checkpoint.Native {
		named, err := describedBy(c, weights)
		if err != nil {
			return nil, err
		}
		c = named
	}
	if j.o.To == checkpoint.Dense {
		return j.toDense(ctx, c)
	}
	if c.Form == checkpoint.Dense {
		restored, err := dense.Restore(c)
		if err != nil {
			return nil, err
		}
		c = restored
	}
	world, err := j.world()
	if err != nil {
		return nil, err
	}
	if world == 0 {
		world = len(c.Ranks)
	}
	target := c
	if j.o.World = world; world != len(c.Ranks) || j.o.Fidelity == Reference {
		if target, err = j.resharded(c); err != nil {
			return nil, err
		}
	}
	return j.rankLocal(target, weights)
}

// world is the number of ranks of a compact or native target, 0 for the source's.
func (j *job) world() (int, error) {
	switch {
	case j.o.To == checkpoint.Native && j.o.World > 1:
		return 0, fault.New(fault.Usage, "the native form has one process, and --world is %d", j.o.World).WithHint("leave out --world")
	case j.o.To == checkpoint.Native:
		return 1, nil
	case j.o.World != 0:
		return j.o.World, checkWorld(j.o.World)
	case j.source.Form == checkpoint.Native:
		return 0, fault.New(fault.Usage, "a native checkpoint does not say for how many ranks").WithHint("add --world M")
	}
	return 0, nil // as many as the source has
}

// rankLocal arranges the states of c as the tree of a compact or native target.
func (j *job) rankLocal(c *checkpoint.Checkpoint, weights map[string]weight) (pickle.Value, error) {
	l := j.o.Layout
	if l == "" {
		l = map[checkpoint.Form]checkpoint.Layout{checkpoint.Compact: checkpoint.Nested, checkpoint.Native: checkpoint.Raw}[j.o.To]
	}
	out := *c
	out.Params = slices.Clone(c.Params)
	for i := range out.Params {
		if w, ok := weights[out.Params[i].Name]; ok && out.Params[i].FQN == "" {
			out.Params[i].FQN = w.fqn
		}
	}
	if compact.NeedsNames(&out, l) {
		j.warn("", "the source has no parameter names of the model; the registered ones, in lower case, are written in their place")
	}
	if j.o.To == checkpoint.Native {
		return native.Tree(&out, l), nil
	}
	if err := j.mesh(&out); err != nil {
		return nil, err
	}
	return compact.Tree(&out, l)
}

// mesh gives the target its mesh: the source's device type and dimension names
// unless options say otherwise, and ranks in order.
func (j *job) mesh(c *checkpoint.Checkpoint) error {
	m := &checkpoint.Mesh{DimNames: []string{}}
	if c.Mesh != nil {
		m.DeviceType, m.DimNames = c.Mesh.DeviceType, c.Mesh.DimNames
	}
	if j.o.DeviceType != "" {
		m.DeviceType = j.o.DeviceType
	}
	if j.o.MeshDimNames != nil {
		m.DimNames = j.o.MeshDimNames
	}
	if m.DeviceType == "" {
		return fault.New(fault.Usage, "the source does not say on what kind of device the target's ranks run").
			WithHint("add --device-type cuda (or cpu, ...), and --mesh-dim-name where the mesh's dimension has a name")
	}
	m.Shape = []int64{int64(len(c.Ranks))}
	for r := range c.Ranks {
		m.Ranks = append(m.Ranks, int64(r))
	}
	if c.Mesh != nil && len(c.Mesh.Ranks) == len(m.Ranks) {
		m.Ranks = c.Mesh.Ranks
	}
	if c.Deterministic == nil {
		policy := false
		c.Deterministic = &policy
	}
	c.Mesh, c.World = m, len(c.Ranks)
	return nil
}

// weight is a model's parameter that lies in the same checkpoint.
type weight struct {
	fqn   string
	shape []int64
	dtype tensor.DType
}

// findWeights finds the model's state dict beside the optimizer: the dict with
// the most tensors under the optimizer's parameter names.
func findWeights(c *checkpoint.Checkpoint) map[string]weight {
	names := map[string]bool{}
	for _, p := range c.Params {
		names[p.Name] = true
	}
	var best map[string]weight
	tree.Walk(c.Root, func(path tree.Path, v pickle.Value) bool {
		d, ok := pickle.AsDict(v)
		if !ok || len(path) == len(c.Key) && len(path) > 0 && path.String() == strings.Join(c.Key, ".") {
			return false
		}
		found := map[string]weight{}
		for _, p := range d.Pairs {
			key, _ := p.Key.(string)
			if t, ok := p.Value.(*tensor.Tensor); ok && names[strings.ToLower(key)] {
				found[strings.ToLower(key)] = weight{key, t.Shape, t.DType}
			}
		}
		if len(found) > len(best) {
			best = found
		}
		return len(path) < 4
	})
	return best
}

// describedBy completes a native checkpoint, whose file has no shapes and types,
// from the model's weights, and makes its parameters sharded: one rank holds all
// rows.
func describedBy(c *checkpoint.Checkpoint, weights map[string]weight) (*checkpoint.Checkpoint, error) {
	out := *c
	out.Params = slices.Clone(c.Params)
	rank := c.Ranks[0]
	rank.Shards = slices.Clone(rank.Shards)
	for i := range out.Params {
		p, s := &out.Params[i], &rank.Shards[i]
		w, ok := weights[p.Name]
		if !ok {
			return nil, fault.New(fault.Unsupported, "the shape of parameter %s is unknown: a native state has none, and no model's weights are beside it", p.Name).
				WithHint("save the model's state dict in the same file, as {\"model\": ..., \"optimizer\": ...}")
		}
		if n, _ := tensor.Volume(w.shape); s.State != nil && s.State.Index != nil && n != s.State.Index.Len() {
			return nil, fault.New(fault.Corrupt, "its state has %d elements, the model's weight %v has %d", s.State.Index.Len(), w.shape, n).In(p.Name)
		}
		p.Shape, p.FQN = w.shape, w.fqn
		p.DType = "torch." + w.dtype.String()
		p.LocalDType = p.DType
		p.Placement = checkpoint.Placement{Type: "Shard", Module: checkpoint.PlacementModule}
		s.LocalShape = w.shape
	}
	out.Ranks = []checkpoint.Rank{rank}
	return &out, nil
}
