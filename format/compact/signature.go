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
func (p *payload) parameters() error {
	if len(p.signature) != len(p.s.Entries) {
		return fault.New(fault.Corrupt, "the signature has %d parameters, and the groups have %d", len(p.signature), len(p.s.Entries))
	}
	params := make([]checkpoint.Param, len(p.signature))
	for i, sig := range p.signature {
		if err := p.parameter(&params[i], sig, &p.s.Entries[i]); err != nil {
			return fault.Within(err, "", fmt.Sprintf("%s.%d", keySignature, i))
		}
		if params[i].ShardedMode != "" {
			p.c.Optimizer = checkpoint.Muon
		}
	}
	p.c.Params = params
	return nil
}

// parameter reads one entry of a signature.
func (p *payload) parameter(out *checkpoint.Param, sig *pickle.Dict, entry *layout.Entry) error {
	out.Group, out.Index = entry.Group, entry.Index
	if p.s.Layout != checkpoint.Raw {
		out.FQN = entry.Key
	}
	var ok [4]bool
	out.Name, ok[0] = first(sig, "name").(string)
	out.Shape, ok[1] = pickle.Ints(first(sig, "shape"))
	out.DType, ok[2] = first(sig, "dtype").(string)
	out.Grad, ok[3] = first(sig, "requires_grad").(bool)
	if slices.Contains(ok[:], false) {
		return fault.New(fault.Corrupt, "a signature takes name, shape, dtype and requires_grad")
	}
	if _, sane := tensor.Volume(out.Shape); !sane {
		return fault.New(fault.Corrupt, "the shape is %v, which is no tensor's", out.Shape)
	}
	out.Identifier, _ = first(sig, "identifier").(string)
	out.LocalDType, _ = first(sig, "local_dtype").(string)
	out.ShardedMode, _ = first(sig, "sharded_mode").(string)
	if placements, ok := pickle.Sequence(first(sig, "placements")); ok {
		return readPlacement(out, placements)
	}
	return nil
}

// hsdp is what to do about a mesh of several dimensions.
const hsdp = "Gefen refuses such meshes too: save from a run whose mesh has one dimension"

func readPlacement(p *checkpoint.Param, placements []pickle.Value) error {
	if len(placements) != 1 {
		return fault.New(fault.Unsupported, "there are %d placements, expected one: meshes of several dimensions (HSDP) are not read", len(placements)).WithHint(hsdp)
	}
	d, err := layout.Dict(placements[0], "placements")
	if err != nil {
		return err
	}
	p.Placement.Type, _ = first(d, "type").(string)
	p.Placement.Module, _ = first(d, "module").(string)
	switch p.Placement.Type {
	case "Shard":
		dim, ok := first(d, "dim").(int64)
		if !ok || dim < 0 || dim >= int64(len(p.Shape)) {
			return fault.New(fault.Corrupt, "it is sharded along dimension %s of %v", tree.Describe(first(d, "dim")), p.Shape)
		}
		p.Placement.Dim = int(dim)
	case "Replicate":
	default:
		return fault.New(fault.Unsupported, "it is placed as %q, which is not read", p.Placement.Type).
			WithHint("shard the parameter with Shard(0), as fully_shard does")
	}
	return nil
}

// shard reads one parameter of one rank.
func (p *payload) shard(rank *checkpoint.Rank, i int) {
	param, s := &p.c.Params[i], &rank.Shards[i]
	sig, state := p.signature[i], p.states[i]
	item := p.item + ": " + param.Name
	p.own(i, rank.Coordinate, item)
	var ok bool
	if s.LocalShape, ok = pickle.Ints(first(sig, "local_shape")); !ok {
		p.c.Fault(fault.Corrupt, item+".local_shape", "it is %s, expected a list of integers", tree.Describe(first(sig, "local_shape")))
		s.LocalShape = []int64{0}
		return
	}
	if !p.geometry(param, s, p.place(p.rank), item) {
		return
	}
	if name := first(state, checkpoint.KeyName); name != param.Name { // S2
		p.c.Fault(fault.Corrupt, item+".name", "the state is of %s, expected %q", text(name), param.Name)
	}
	s.State = p.c.ReadState(state, item)
	p.c.CheckState(param, s, item)
}

// own compares what a signature says of the parameter with what the first
// payload's said, and of the rank with the mesh.
func (p *payload) own(i, coordinate int, item string) {
	param, sig := &p.c.Params[i], p.signature[i]
	if want := identifier(param); first(sig, "identifier") != want {
		p.c.Fault(fault.Corrupt, item+".identifier", "it is %s, expected %q", text(first(sig, "identifier")), want)
	}
	for _, key := range manifestKeys {
		if want := first(p.outer.signature[i], key); !pickle.Equal(first(sig, key), want) {
			p.c.Fault(fault.Corrupt, item+"."+key, "it is %s, and other ranks have %s", text(first(sig, key)), text(want))
		}
	}
	if !param.Sharded() {
		return
	}
	if want := pickle.NewList(int64(coordinate)); p.c.Mesh != nil && !pickle.Equal(first(sig, "coordinate"), want) {
		p.c.Fault(fault.Corrupt, item+".coordinate", "it is %s, and the rank's place in the mesh is %s", text(first(sig, "coordinate")), text(want))
	}
	if !pickle.Equal(first(sig, keyMesh), first(p.d, keyMesh)) {
		p.c.Fault(fault.Corrupt, item+"."+keyMesh, "the parameter's mesh is not the payload's")
	}
}

// geometry checks the local shape against torch.chunk's rule, and notes where the
// shard begins. It says whether the state can be read on.
func (p *payload) geometry(param *checkpoint.Param, s *checkpoint.Shard, place int, item string) bool {
	want := param.Shape
	if param.Placement.Type == "Shard" {
		d := param.Placement.Dim
		want = slices.Clone(param.Shape)
		s.Row, want[d] = checkpoint.ChunkRows(param.Shape[d], p.c.World, place)
	}
	if !slices.Equal(s.LocalShape, want) {
		p.c.Fault(fault.Corrupt, item+".local_shape", "it is %v, expected %v at place %d of %d", s.LocalShape, want, place, p.c.World)
	}
	if _, sane := tensor.Volume(s.LocalShape); !sane || len(s.LocalShape) != len(param.Shape) {
		s.LocalShape = want
		return false
	}
	return true
}

// text is a small value in full, a large one in a few words.
func text(v pickle.Value) string {
	if items, ok := pickle.Sequence(v); ok && len(items) <= 8 {
		parts := make([]string, len(items))
		for i, item := range items {
			parts[i] = tree.Describe(item)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return tree.Describe(v)
}
