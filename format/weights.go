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

// describeParams takes what a state lacks of its parameters from the model's weights,
// where they stand in the same container: the shapes of a native one, the types of
// a native and a dense one, and names in the model's case.
//
// It also finds the checkpoints that were saved under FSDP2 by a Gefen from before
// there were payloads: they have rank 0's state for the whole, and look native.
func describeParams(c *checkpoint.Checkpoint) {
	if len(c.Halves) > 0 {
		return
	}
	weights := findWeights(c)
	for i := range c.Params {
		p := &c.Params[i]
		w, ok := weights[p.Name]
		if !ok || !describeShape(c, i, w.tensor) {
			continue
		}
		if p.DType == "" {
			p.DType = "torch." + w.tensor.DType.String()
			p.LocalDType = p.DType
		}
		if p.FQN == "" {
			p.FQN = w.name
		}
	}
}

// describeShape says whether parameter i may have the shape of a weight, and
// gives it to the parameter of a native state.
func describeShape(c *checkpoint.Checkpoint, i int, weight *tensor.Tensor) bool {
	p := &c.Params[i]
	if c.Form != checkpoint.Native {
		return slices.Equal(p.Shape, weight.Shape)
	}
	s := &c.Ranks[0].Shards[i]
	if s.State != nil && s.State.Index != nil && s.State.Index.Len() != weight.Len() {
		if s.State.Index.Len() < weight.Len() {
			c.FaultErr(partial(s.State.Index.Len(), weight), p.Name)
		}
		return false
	}
	p.Shape, s.LocalShape = weight.Shape, weight.Shape
	return true
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
