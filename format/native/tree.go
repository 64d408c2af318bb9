package native

import (
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// Tree is the optimizer's state dict of one process, c's only rank, in the layout
// l. Where the source does not say whether the optimizer was deterministic, nor
// does the tree.
func Tree(c *checkpoint.Checkpoint, l checkpoint.Layout) *pickle.Dict {
	var book pickle.Value
	if t := c.Ranks[0].Codebook; t != nil {
		book = t
	}
	metadata := pickle.NewDict("format_version", int64(1), "global_step", c.GlobalStep, "codebook", book)
	top := pickle.NewDict("gefen_global_step", c.GlobalStep)
	if c.Deterministic != nil {
		metadata.Set("deterministic", *c.Deterministic)
		top.Set("gefen_deterministic", *c.Deterministic)
	}
	metadata.Set("device_anchor", tensor.FromBytes(tensor.Uint8, []int64{1}, []byte{0}))
	top.Set("gefen_codebook", book)
	if c.Owners != nil {
		owners := ownersFor(c, l)
		metadata.Set(keyOwnersMetadata, owners)
		top.Set(keyOwners, owners)
	}
	s := &layout.State{Top: top}
	for _, g := range c.Groups {
		s.Groups = append(s.Groups, layout.Group{Fields: g.Fields, Metadata: metadata, MetadataLast: true, Entries: g.Params})
	}
	for i, p := range c.Params {
		s.Entries = append(s.Entries, layout.Entry{Key: p.Key(), Fields: c.Ranks[0].Shards[i].State.Dict(p.Name), Group: p.Group, Index: p.Index})
	}
	return s.Build(l)
}
