package convert

import (
	"context"
	"fmt"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// toDense expands the state of c: the slots hold what it means, bit for bit, in
// one chunk of rows per rank of the target. What leads back to a compact
// checkpoint stands beside them.
func (j *job) toDense(ctx context.Context, c *checkpoint.Checkpoint) (pickle.Value, error) {
	world := j.o.World
	if world == 0 {
		world = max(c.World, 1)
	}
	if err := checkWorld(world); err != nil {
		return nil, err
	}
	j.denseWorld = world
	if err := j.joinParts(world); err != nil {
		return nil, err
	}
	slots := make([]dense.Slot, len(c.Params))
	for p := range c.Params {
		if err := j.slot(c, p, world, &slots[p]); err != nil {
			return nil, fault.Within(err, "", c.Params[p].Name)
		}
	}
	out := dense.Tree(c, slots)
	if c.Form != checkpoint.Compact {
		return out, nil
	}
	origin, err := dense.Remember(ctx, c)
	if err != nil {
		return nil, err
	}
	if origin != nil {
		out.Set(dense.KeyOrigin, origin)
	}
	return out, nil
}

func (j *job) slot(c *checkpoint.Checkpoint, p, world int, slot *dense.Slot) error {
	param := &c.Params[p]
	switch {
	case len(param.Shape) == 0:
		return fault.New(fault.Unsupported, "a parameter without dimensions has no rows, and the dense form needs them")
	case param.Placement.Type == "Shard" && !param.Placement.Rows():
		return fault.New(fault.Unsupported, "it is sharded as %s", param.Placement).
			WithHint("GefenDCPState needs Shard(0); save from a run that shards rows, as fully_shard does")
	case !param.Placement.Rows():
		j.warn(param.Name, "it is %s: every rank holds it whole, and rank 0's state is taken", param.Placement)
	}
	slot.Initialized, slot.Step, slot.VmeanStep = counters(c, p)
	width := int64(1)
	for _, d := range param.Shape[1:] {
		width *= d
	}
	open := func() (moments.Reader, error) { return moments.OfParameter(c, p) }
	for r := range world {
		local, row := checkpoint.ChunkShape(param.Shape, world, r)
		n, _ := tensor.Volume(local)
		part := func(read func(moments.Reader, []float32, int64) error) *tensor.Tensor {
			return &tensor.Tensor{DType: tensor.Float32, Shape: local, Content: &moment{open, read, row * width, n}}
		}
		slot.Momentum = append(slot.Momentum, part(moments.Reader.Momentum))
		slot.SecondMoment = append(slot.SecondMoment, part(moments.Reader.SecondMoment))
	}
	return nil
}

// counters are the steps of a parameter over all shards that have state: of
// shards that disagree the largest. A second moment without a counter of its own
// is as old as the momentum.
func counters(c *checkpoint.Checkpoint, p int) (initialized bool, step, vmeanStep int64) {
	if len(c.Slots) > 0 {
		s := c.Slots[p]
		return s.Initialized, s.Step, s.VmeanStep
	}
	for _, rank := range c.Ranks {
		s := rank.Shards[p].State
		if s == nil || s.Index == nil {
			continue
		}
		own := max(s.VmeanStep, s.FactoredStep)
		if own == checkpoint.Absent {
			own = s.Step
		}
		initialized, step, vmeanStep = true, max(step, s.Step), max(vmeanStep, own)
	}
	return initialized, step, vmeanStep
}

func (j *job) warn(item, format string, args ...any) {
	j.result.Warnings = append(j.result.Warnings, fault.New(fault.Unsupported, "%s", fmt.Sprintf(format, args...)).In(item).File(j.source.Path))
}
