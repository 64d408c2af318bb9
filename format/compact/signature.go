package compact

import (
	"fmt"
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// parameters makes the list of parameters from the first signature that is read.
func (r *reader) parameters(signature []*pickle.Dict, item string) error {
	if len(signature) != len(r.s.Entries) {
		return fault.New(fault.Corrupt, "%d parameters in the signature, %d in the groups", len(signature), len(r.s.Entries))
	}
	for i, sig := range signature {
		entry := r.s.Entries[i]
		at := fmt.Sprintf("%s.signature.%d", item, i)
		p := checkpoint.Param{Group: entry.Group, Index: entry.Index}
		if r.s.Layout != checkpoint.Raw {
			p.FQN = entry.Key
		}
		var ok [4]bool
		p.Name, ok[0] = first(sig, "name").(string)
		p.Shape, ok[1] = pickle.Ints(first(sig, "shape"))
		p.DType, ok[2] = first(sig, "dtype").(string)
		p.Grad, ok[3] = first(sig, "requires_grad").(bool)
		if slices.Contains(ok[:], false) {
			return fault.New(fault.Corrupt, "a signature needs name, shape, dtype and requires_grad").In(at)
		}
		if _, sane := tensor.Volume(p.Shape); !sane {
			return fault.New(fault.Corrupt, "shape %v is no tensor's", p.Shape).In(at)
		}
		p.Identifier, _ = first(sig, "identifier").(string)
		p.LocalDType, _ = first(sig, "local_dtype").(string)
		p.ShardedMode, _ = first(sig, "sharded_mode").(string)
		if p.ShardedMode != "" {
			r.c.Optimizer = checkpoint.Muon
		}
		if want := fmt.Sprintf("group_%d_param_%d_%s", p.Group, p.Index, p.Name); p.Identifier != want {
			r.c.Fault(fault.Corrupt, at+".identifier", "%q, expected %q", p.Identifier, want)
		}
		if p.FQN != "" && strings.ToLower(p.FQN) != p.Name {
			r.c.Warn(at, "parameter %q is registered as %q", p.FQN, p.Name)
		}
		if placements, ok := pickle.Sequence(first(sig, "placements")); ok {
			if err := readPlacement(&p, placements); err != nil {
				return fault.Within(err, "", at)
			}
		}
		r.c.Params = append(r.c.Params, p)
	}
	return nil
}

func readPlacement(p *checkpoint.Param, placements []pickle.Value) error {
	if len(placements) != 1 {
		return fault.New(fault.Unsupported, "%d placements, expected one: meshes of several dimensions (HSDP) are not read", len(placements))
	}
	d, err := layout.Dict(placements[0], "placements")
	if err != nil {
		return err
	}
	p.Placement.Type, _ = first(d, "type").(string)
	p.Placement.Module, _ = first(d, "module").(string)
	if dim, ok := first(d, "dim").(int64); ok {
		p.Placement.Dim = int(dim)
	}
	switch p.Placement.Type {
	case "Shard":
		if p.Placement.Dim < 0 || p.Placement.Dim >= len(p.Shape) {
			return fault.New(fault.Corrupt, "sharded along dimension %d of %v", p.Placement.Dim, p.Shape)
		}
	case "Replicate":
	default:
		return fault.New(fault.Unsupported, "placement %q is not read", p.Placement.Type).
			WithHint("shard the parameter with Shard(0), as fully_shard does")
	}
	return nil
}

// shard reads one parameter of one rank.
func (r *reader) shard(out *checkpoint.Rank, i int, sig, state *pickle.Dict, item string) {
	p := &r.c.Params[i]
	s := &out.Shards[i]
	var ok bool
	if s.LocalShape, ok = pickle.Ints(first(sig, "local_shape")); !ok {
		r.c.Fault(fault.Corrupt, item+".local_shape", "%s, expected a list of integers", tree.Describe(first(sig, "local_shape")))
		s.LocalShape = []int64{0}
		return
	}
	if name := first(sig, "name"); name != p.Name {
		r.c.Fault(fault.Corrupt, item, "parameter %d is %s here and %q on other ranks", i, text(name), p.Name)
	}
	if shape, _ := pickle.Ints(first(sig, "shape")); !slices.Equal(shape, p.Shape) {
		r.c.Fault(fault.Corrupt, item, "its shape is %v here and %v on other ranks", shape, p.Shape)
	}
	if name := first(state, checkpoint.KeyName); name != p.Name { // S2
		r.c.Fault(fault.Corrupt, item+".name", "%s, expected %q", text(name), p.Name)
	}
	if at, ok := pickle.Ints(first(sig, "coordinate")); ok && len(at) == 1 {
		out.Coordinate = int(at[0])
	}
	r.geometry(p, s, out.Coordinate, item)
	s.State = r.c.ReadState(state, item)
	if s.State != nil {
		r.c.CheckState(s.State, p.Shape, s.LocalShape, p.ShardedMode != "", item)
	}
}

// geometry checks the local shape against torch.chunk's rule and notes the
// shard's first row.
func (r *reader) geometry(p *checkpoint.Param, s *checkpoint.Shard, coordinate int, item string) {
	want := p.Shape
	if p.Placement.Type == "Shard" {
		if coordinate < 0 || coordinate >= r.c.World {
			r.c.Fault(fault.Corrupt, item, "mesh coordinate %d in a world of %d", coordinate, r.c.World)
			return
		}
		want = slices.Clone(p.Shape)
		d := p.Placement.Dim
		s.Row, want[d] = checkpoint.ChunkRows(p.Shape[d], r.c.World, coordinate)
	}
	if !slices.Equal(s.LocalShape, want) {
		r.c.Fault(fault.Corrupt, item, "the local shape is %v, expected %v at coordinate %d of %d", s.LocalShape, want, coordinate, r.c.World)
	}
}

// finish reads the groups and compares the ranks with each other.
func (r *reader) finish() {
	for g, group := range r.s.Groups {
		r.c.Groups = append(r.c.Groups, r.c.ReadGroup(group.Fields, group.Entries, fmt.Sprintf("%s.%d", layout.KeyGroups, g)))
	}
	checkNames(r.c)
	for i := range r.c.Params {
		steps := map[[2]int64]int{}
		for _, rank := range r.c.Ranks {
			s := rank.Shards[i]
			if n, _ := tensor.Volume(s.LocalShape); s.State != nil && n > 0 {
				steps[[2]int64{s.State.Step, s.State.VmeanStep}]++
			} else if n > 0 {
				steps[[2]int64{checkpoint.Absent, checkpoint.Absent}]++
			}
		}
		if len(steps) > 1 {
			r.c.Warn(r.c.Params[i].Name, "ranks disagree about its steps: %v", steps)
		}
	}
}

// checkNames compares param_names, which a loader believes over everything else,
// with the names in the signatures, and notes the invented ones.
func checkNames(c *checkpoint.Checkpoint) {
	for g, group := range c.Groups {
		item := fmt.Sprintf("%s.%d", layout.KeyGroups, g)
		invented, _ := pickle.Sequence(first(group.Fields, layout.KeyInvented))
		v, ok := group.Fields.Get(layout.KeyNames)
		names, ok2 := pickle.Strings(v)
		switch {
		case !ok:
			continue
		case !ok2 || len(names) != len(group.Params):
			c.Fault(fault.Corrupt, item+"."+layout.KeyNames, "%s for %d parameters", tree.Describe(v), len(group.Params))
			continue
		}
		for i, p := range group.Params {
			if p >= len(c.Params) {
				continue
			}
			if names[i] != c.Params[p].Name {
				c.Fault(fault.Corrupt, item+"."+layout.KeyNames, "parameter %d is named %q, its signature says %q", i, names[i], c.Params[p].Name)
			}
			c.Params[p].Synthesized = i < len(invented) && invented[i] == true
		}
	}
}
