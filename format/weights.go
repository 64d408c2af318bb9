package format

import (
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// describeShapes takes the shapes, types and names that a native state lacks from
// the model's weights, where they stand in the same container.
//
// It also finds the checkpoints that were saved under FSDP2 by a Gefen from before
// there were payloads: they have rank 0's state for the whole, and look native.
func describeShapes(c *checkpoint.Checkpoint) {
	if c.Form != checkpoint.Native || len(c.Halves) > 0 {
		return
	}
	weights := findWeights(c)
	for i := range c.Params {
		p, s := &c.Params[i], &c.Ranks[0].Shards[i]
		w, ok := weights[p.Name]
		if !ok {
			continue
		}
		if s.State != nil && s.State.Index != nil && s.State.Index.Len() != w.tensor.Len() {
			if s.State.Index.Len() < w.tensor.Len() {
				c.FaultErr(partial(s.State.Index.Len(), w.tensor), p.Name)
			}
			continue
		}
		p.Shape, p.DType = w.tensor.Shape, "torch."+w.tensor.DType.String()
		p.LocalDType = p.DType
		s.LocalShape = p.Shape
		if p.FQN == "" {
			p.FQN = w.name
		}
	}
}

func partial(have int64, weight *tensor.Tensor) error {
	return fault.New(fault.Unsupported, "the state has %d elements and the model's weight %v has %d: an old full checkpoint of a sharded run, which kept rank 0's state for all ranks; that of the others is lost",
		have, weight.Shape, weight.Len()).WithHint("save again from the original run, with a Gefen-X that writes rank-local payloads")
}

// weight is a model's parameter.
type weight struct {
	name   string
	tensor *tensor.Tensor
}

// findWeights finds the model's state dict beside the optimizer: the dict with
// the most tensors under the optimizer's parameter names. Its keys are these
// names.
func findWeights(c *checkpoint.Checkpoint) map[string]weight {
	wanted := make(map[string]bool, len(c.Params))
	for i := range c.Params {
		wanted[c.Params[i].Name] = true
	}
	var best map[string]weight
	tree.Walk(c.Root, func(path tree.Path, v pickle.Value) bool {
		d, ok := pickle.AsDict(v)
		if !ok {
			return len(path) < searchDepth
		}
		if slices.Equal(names(path), c.Key) {
			return false
		}
		found := map[string]weight{}
		for _, p := range d.Pairs {
			key, _ := p.Key.(string)
			if t, ok := p.Value.(*tensor.Tensor); ok && wanted[strings.ToLower(key)] {
				found[strings.ToLower(key)] = weight{key, t}
			}
		}
		if len(found) > len(best) {
			best = found
		}
		return len(path) < searchDepth
	})
	return best
}
