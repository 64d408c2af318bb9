package compact

import (
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/fault"
)

// Tree is the optimizer's state dict of a rank-local checkpoint in the layout l:
// c's parameters, groups, mesh and ranks, whose tensors may be stored or have
// Content. Every value that a loader compares with its own is made here: world,
// mesh, signatures, manifest, coordinates.
//
// made, unless it is nil, gives the payload that was made elsewhere for a rank; it
// must be of the size that is asked for.
func Tree(c *checkpoint.Checkpoint, l checkpoint.Layout, made func(rank int, size int64) (tensor.Content, error)) (*pickle.Dict, error) {
	b, err := newBuilder(c)
	if err != nil {
		return nil, err
	}
	carrier := pickle.NewDict(checkpoint.KeyName, int64(0))
	for r := range c.Ranks {
		archive, err := b.payload(&c.Ranks[r])
		if err != nil {
			return nil, fault.Within(err, "", "payload of rank "+strconv.Itoa(r))
		}
		payload := &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{archive.Size()}, Content: archive}
		if made != nil {
			if payload.Content, err = made(r, archive.Size()); err != nil {
				return nil, err
			}
		}
		carrier.Set(layout.PayloadKey(c.Ranks[r].GlobalRank), payload)
	}
	metadata := b.metadata()
	s := &layout.State{Top: pickle.NewDict("gefen_global_step", c.GlobalStep, "gefen_deterministic", *c.Deterministic, "gefen_codebook", nil)}
	for _, g := range c.Groups {
		s.Groups = append(s.Groups, layout.Group{Fields: g.Fields, Metadata: metadata, Entries: g.Params})
	}
	for i, p := range c.Params {
		fields := carrier
		if i > 0 {
			fields = pickle.NewDict(checkpoint.KeyName, int64(0), layout.MemberKey, true)
		}
		s.Entries = append(s.Entries, layout.Entry{Key: p.Key(), Fields: fields, Group: p.Group, Index: p.Index})
	}
	return s.Build(l), nil
}

// Payload is the archive of c's rank r alone, as it is in the Tree.
func Payload(c *checkpoint.Checkpoint, r int) (*torchfile.File, error) {
	b, err := newBuilder(c)
	if err != nil {
		return nil, err
	}
	return b.payload(&c.Ranks[r])
}

// builder makes the dicts of one checkpoint; those that are equal are one object,
// as the writer's memo then keeps them small.
type builder struct {
	c          *checkpoint.Checkpoint
	mesh       *pickle.Dict
	worldRanks *pickle.List
	manifest   *pickle.List
	signatures *pickle.Dict // by rank, as a string
}

func newBuilder(c *checkpoint.Checkpoint) (*builder, error) {
	if c.Mesh == nil || c.World != len(c.Ranks) || c.Deterministic == nil {
		return nil, fault.New(fault.Internal, "a rank-local state needs a mesh, a policy, and all of its %d ranks", c.World)
	}
	b := &builder{c: c, mesh: meshDict(c.Mesh), worldRanks: worldRanks(c.World), manifest: &pickle.List{}, signatures: &pickle.Dict{}}
	for i := range c.Params {
		b.manifest.Items = append(b.manifest.Items, b.manifestEntry(&c.Params[i]))
	}
	return b, nil
}

func meshDict(m *checkpoint.Mesh) *pickle.Dict {
	return pickle.NewDict("device_type", m.DeviceType, "shape", pickle.IntList(m.Shape), "dim_names", pickle.StringList(m.DimNames), "ranks", pickle.IntList(m.Ranks))
}

func worldRanks(n int) *pickle.List {
	l := &pickle.List{}
	for r := range n {
		l.Items = append(l.Items, int64(r))
	}
	return l
}

func identifier(p *checkpoint.Param) string {
	return "group_" + strconv.Itoa(p.Group) + "_param_" + strconv.Itoa(p.Index) + "_" + p.Name
}

// mode is sharded_mode: None for plain Gefen.
func mode(p *checkpoint.Param) pickle.Value {
	if p.ShardedMode == "" {
		return nil
	}
	return p.ShardedMode
}

func (b *builder) manifestEntry(p *checkpoint.Param) *pickle.Dict {
	return pickle.NewDict("identifier", identifier(p), "group", int64(p.Group), "param", int64(p.Index), "name", p.Name,
		"sharded", p.Sharded(), "shape", pickle.IntList(p.Shape), "dtype", p.DType, "requires_grad", p.Grad, "sharded_mode", mode(p))
}

// signature describes a parameter on one rank.
func (b *builder) signature(p *checkpoint.Param, s *checkpoint.Shard, coordinate int) *pickle.Dict {
	d := pickle.NewDict("identifier", identifier(p), "group", int64(p.Group), "param", int64(p.Index), "name", p.Name,
		"sharded", p.Sharded(), "shape", pickle.IntList(p.Shape), "local_shape", pickle.IntList(s.LocalShape), "dtype", p.DType)
	if !p.Sharded() {
		d.Set("requires_grad", p.Grad)
		d.Set("sharded_mode", mode(p))
		return d
	}
	d.Set("local_dtype", p.LocalDType)
	d.Set("requires_grad", p.Grad)
	placement := pickle.NewDict("type", p.Placement.Type, "module", p.Placement.Module)
	if p.Placement.Type == "Shard" {
		placement.Set("dim", int64(p.Placement.Dim))
	}
	d.Set("placements", pickle.NewList(placement))
	d.Set("mesh", b.mesh)
	d.Set("coordinate", pickle.NewList(int64(coordinate)))
	d.Set("sharded_mode", mode(p))
	return d
}

// payload is one rank's archive.
func (b *builder) payload(r *checkpoint.Rank) (*torchfile.File, error) {
	signature, states := &pickle.List{}, &pickle.List{}
	for i := range b.c.Params {
		p := &b.c.Params[i]
		signature.Items = append(signature.Items, b.signature(p, &r.Shards[i], r.Coordinate))
		states.Items = append(states.Items, r.Shards[i].State.Dict(p.Name))
	}
	b.signatures.Set(strconv.Itoa(r.GlobalRank), signature)
	var book pickle.Value
	if r.Codebook != nil {
		book = r.Codebook
	}
	// The mesh spans the world, and its process group counts as the world does,
	// however the mesh is permuted.
	groupRank := int64(r.GlobalRank)
	return torchfile.New(pickle.NewDict("format", payloadFormat, "global_rank", int64(r.GlobalRank), "group_rank", groupRank,
		"world_size", int64(b.c.World), "world_ranks", b.worldRanks, "mesh", b.mesh, "signature", signature,
		"parameter_manifest", b.manifest, "global_step", b.c.GlobalStep, "deterministic", *b.c.Deterministic,
		"states", states, "codebook", book), torchfile.WriteOptions{})
}

// metadata is _gefen_checkpoint_metadata; every group has the same object.
func (b *builder) metadata() *pickle.Dict {
	return pickle.NewDict("format_version", int64(3), "global_step", b.c.GlobalStep, "codebook", nil, "deterministic", *b.c.Deterministic,
		"device_anchor", tensor.FromBytes(tensor.Uint8, []int64{1}, []byte{0}),
		KeyMarker, pickle.NewDict("format", payloadFormat, "world_size", int64(b.c.World), "world_ranks", b.worldRanks, "mesh", b.mesh,
			"signatures", b.signatures, "parameter_manifest", b.manifest, "global_step", b.c.GlobalStep, "deterministic", *b.c.Deterministic))
}

// NeedsNames says whether the parameters' outer names are unknown and a nested or
// flat layout would have to assume that they are lower case.
func NeedsNames(c *checkpoint.Checkpoint, l checkpoint.Layout) bool {
	return l != checkpoint.Raw && slices.ContainsFunc(c.Params, func(p checkpoint.Param) bool {
		return p.FQN == "" || !strings.EqualFold(p.FQN, p.Name)
	})
}
