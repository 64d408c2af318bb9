package convert

import (
	"context"
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/native"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// target makes the optimizer's subtree in the target's form.
func (j *job) target(ctx context.Context) (pickle.Value, error) {
	c := j.source
	if len(c.Halves) > 0 || c.Optimizer != checkpoint.Gefen {
		return nil, fault.New(fault.Unsupported, "the optimizer is %s: its checkpoints are inspected, not converted", c.Optimizer).
			WithHint("only plain Gefen's state is converted")
	}
	if c.Form == checkpoint.Native && j.o.To != checkpoint.Native {
		described, err := oneRank(c)
		if err != nil {
			return nil, err
		}
		c = described
	}
	if j.o.To == checkpoint.Dense {
		return j.toDense(ctx, c)
	}
	if c.Form == checkpoint.Dense {
		ranked, err := j.ranked(ctx, c)
		if err != nil {
			return nil, err
		}
		c = ranked
	}
	world, err := j.world()
	if err != nil {
		return nil, err
	}
	if world == 0 {
		world = len(c.Ranks)
	}
	j.o.World = world
	if err := j.joinParts(world); err != nil {
		return nil, err
	}
	target := c
	if world != len(c.Ranks) || j.o.Fidelity == Reference {
		if target, err = j.resharded(c); err != nil {
			return nil, err
		}
	}
	return j.rankLocal(target)
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
func (j *job) rankLocal(c *checkpoint.Checkpoint) (pickle.Value, error) {
	l := j.o.Layout
	if l == "" {
		l = map[checkpoint.Form]checkpoint.Layout{checkpoint.Compact: checkpoint.Nested, checkpoint.Native: checkpoint.Raw}[j.o.To]
	}
	out := *c
	j.weigh(&out)
	if compact.NeedsNames(&out, l) {
		j.warn("", "the source has no parameter names of the model; the registered ones, in lower case, are written in their place")
	}
	if j.o.To == checkpoint.Native {
		return native.Tree(&out, l), nil
	}
	if err := j.mesh(&out); err != nil {
		return nil, err
	}
	if j.o.Part.Of > 0 {
		var err error
		j.sink, err = j.newPartSink(&out)
		return nil, err
	}
	return compact.Tree(&out, l, j.madePayload())
}

// weigh notes the size of a target's state that no plan has told.
func (j *job) weigh(c *checkpoint.Checkpoint) {
	if j.result.BytesPerParameter.Target > 0 {
		return
	}
	var bytes, elements int64
	for p := range c.Params {
		bytes += c.StateBytes(p)
		n, _ := tensor.Volume(c.Params[p].Shape)
		elements += n
	}
	j.result.BytesPerParameter.Target = perElement(bytes, elements)
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

// oneRank makes the parameters of a native checkpoint sharded: one rank holds all
// rows. The file has no shapes but those of the model's weights.
func oneRank(c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	out := *c
	out.Params = slices.Clone(c.Params)
	for i := range out.Params {
		p := &out.Params[i]
		if p.DType == "" {
			return nil, fault.New(fault.Unsupported, "the shape of parameter %s is unknown: a native state has none, and no weight of the model that fits is beside it", p.Name).
				WithHint("save the model's state dict in the same file, as {\"model\": ..., \"optimizer\": ...}")
		}
		p.Placement = checkpoint.Placement{Type: "Shard", Module: checkpoint.PlacementModule}
	}
	return &out, nil
}
