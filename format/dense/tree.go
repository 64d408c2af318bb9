package dense

import (
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dcp"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// Slot is the dense state of one parameter, to be written: per rank one part of
// each float32 tensor, whose first dimension is the rank's rows.
type Slot struct {
	Initialized            bool
	Step, VmeanStep        int64
	Momentum, SecondMoment []*tensor.Tensor
}

// Tree is the dense state of c's parameters and groups with the given slots: the
// dict that GefenDCPState gives to DCP. The scalars are the checkpoint's, never
// those of one shard.
func Tree(c *checkpoint.Checkpoint, slots []Slot) *pickle.Dict {
	det := c.Deterministic != nil && *c.Deterministic
	d := pickle.NewDict(
		keyVersion, tensor.FromInt64(formatVersion),
		keyStep, tensor.FromInt64(c.GlobalStep),
		keyDet, flag(det),
		keySlots, tensor.FromInt64(int64(len(slots))),
		keyGroups, tensor.FromInt64(int64(len(c.Groups))),
	)
	identities := &pickle.List{}
	for _, p := range c.Params {
		identities.Items = append(identities.Items, pickle.NewDict("name", p.Name, "group", int64(p.Group), "shape", pickle.IntList(p.Shape)))
	}
	groups := &pickle.List{}
	for _, g := range c.Groups {
		groups.Items = append(groups.Items, pickle.NewDict("lr", g.LR, "beta1", g.Beta1, "beta2", g.Beta2, "eps", g.Eps, "weight_decay", g.WeightDecay))
	}
	d.Set(keyIdentities, identities)
	d.Set(keyHypers, groups)
	for i, s := range slots {
		d.Set(slotKey(i, "initialized"), flag(s.Initialized))
		d.Set(slotKey(i, "step"), tensor.FromInt64(s.Step))
		d.Set(slotKey(i, "vmean_step"), tensor.FromInt64(s.VmeanStep))
		d.Set(slotKey(i, "momentum"), &dcp.Sharded{Parts: s.Momentum})
		d.Set(slotKey(i, "second_moment"), &dcp.Sharded{Parts: s.SecondMoment})
	}
	return d
}

// flag is a bool as a 0-dim uint8 tensor.
func flag(b bool) *tensor.Tensor {
	data := []byte{0}
	if b {
		data[0] = 1
	}
	return tensor.FromBytes(tensor.Uint8, []int64{}, data)
}
