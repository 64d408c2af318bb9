package convert

import (
	"fmt"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// compactToDense expands the state of every rank: the slots hold what the source
// means, bit for bit, cut into chunks as the source's ranks held them.
func (j *job) compactToDense() (pickle.Value, error) {
	c := j.source
	slots := make([]dense.Slot, len(c.Params))
	for p := range c.Params {
		if err := j.slot(p, &slots[p]); err != nil {
			return nil, fault.Within(err, "", c.Params[p].Name)
		}
	}
	return dense.Tree(c, slots), nil
}

func (j *job) slot(p int, slot *dense.Slot) error {
	c := j.source
	param := &c.Params[p]
	if len(param.Shape) == 0 {
		return fault.New(fault.Unsupported, "a parameter without dimensions has no rows, and the dense form needs them")
	}
	ranks, err := j.holders(p)
	if err != nil {
		return err
	}
	for _, r := range ranks {
		shard := &c.Ranks[r].Shards[p]
		n, _ := tensor.Volume(shard.LocalShape)
		open := func() (moments.Reader, error) { return moments.OfShard(c, r, p) }
		part := func(read func(moments.Reader, []float32, int64) error) *tensor.Tensor {
			return &tensor.Tensor{DType: tensor.Float32, Shape: shard.LocalShape, Content: &moment{open, read, n}}
		}
		slot.Momentum = append(slot.Momentum, part(moments.Reader.Momentum))
		slot.SecondMoment = append(slot.SecondMoment, part(moments.Reader.SecondMoment))
		if shard.State == nil || shard.State.Index == nil || n == 0 {
			continue
		}
		step, vmean := shard.State.Step, shard.State.VmeanStep
		if vmean == checkpoint.Absent { // a legacy file, or a factored second moment
			vmean = max(shard.State.FactoredStep, step)
		}
		slot.Initialized = true
		slot.Step, slot.VmeanStep = max(slot.Step, step), max(slot.VmeanStep, vmean)
	}
	return nil
}

// holders are the ranks whose shards make up parameter p, in the order of its
// rows. Of a parameter that every rank holds whole it is the first.
func (j *job) holders(p int) ([]int, error) {
	c := j.source
	param := &c.Params[p]
	if param.Placement.Type == "Shard" && !param.Placement.Rows() {
		return nil, fault.New(fault.Unsupported, "it is sharded as %s", param.Placement).
			WithHint("GefenDCPState needs Shard(0); save from a run that shards rows, as fully_shard does")
	}
	if !param.Placement.Rows() {
		j.warn(param.Name, "it is %s: every rank holds it whole, and rank 0's state is taken", param.Placement)
		return []int{0}, nil
	}
	ranks := make([]int, len(c.Ranks))
	for r, rank := range c.Ranks {
		if rank.Coordinate < 0 || rank.Coordinate >= len(ranks) {
			return nil, fault.New(fault.Corrupt, "rank %d is at mesh coordinate %d of %d", rank.GlobalRank, rank.Coordinate, len(ranks))
		}
		ranks[rank.Coordinate] = r
	}
	return ranks, nil
}

func (j *job) warn(item, format string, args ...any) {
	j.result.Warnings = append(j.result.Warnings, fault.New(fault.Unsupported, "%s", fmt.Sprintf(format, args...)).In(item).File(j.source.Path))
}
