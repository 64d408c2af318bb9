package convert

import (
	"context"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/layout"
	"gefenckpt/format/manifest"
	"gefenckpt/format/pickle"
)

// ranked is the compact checkpoint that a dense directory was made from: what the
// directory remembers of it, or else what its slots show.
func (j *job) ranked(ctx context.Context, c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	if c.Origin != nil {
		return dense.Restore(c)
	}
	out, found, err := dense.Recover(ctx, c, j.o.Jobs)
	if err != nil {
		return nil, err
	}
	if out.World != max(c.World, 1) {
		j.warn("", "the chunks are not those of %d ranks; the slots are taken as one rank's", c.World)
	}
	j.judge(found)
	j.complete(out)
	return out, nil
}

// judge reports how much was recovered. Where a part was not, there are no blocks
// to keep within a budget of bytes: balanced then does what a loader would.
func (j *job) judge(found *dense.Found) {
	j.result.Recovered = &manifest.Recovered{Elements: found.Elements, Explained: found.Explained, Short: found.Short}
	if len(found.Unexplained) == 0 {
		return
	}
	names := strings.Join(found.Unexplained[:min(len(found.Unexplained), 8)], ", ")
	cost := "they have 9 bytes each, in blocks of one, and nothing is lost"
	switch j.o.Fidelity {
	case Balanced:
		j.o.Fidelity = Reference
		cost = "all are quantized as GefenDCPState does when it loads the directory (--fidelity reference), at the error reported"
	case Reference:
		cost = "they are quantized as all others"
	}
	j.warn("", "%d of %d elements are in no blocks with a codebook, and were not expanded from a compact state by the ranks that wrote the chunks: %s; %s",
		found.Elements-found.Explained, found.Elements, names, cost)
}

// complete adds what a dense directory does not say of parameters and groups.
func (j *job) complete(c *checkpoint.Checkpoint) {
	c.Params = append([]checkpoint.Param(nil), c.Params...)
	untyped := 0
	for i := range c.Params {
		p := &c.Params[i]
		p.Grad = true
		if p.DType == "" {
			p.DType, p.LocalDType = "torch.float32", "torch.float32"
			untyped++
		}
	}
	if untyped > 0 {
		j.warn("", "the types of %d of %d parameters are unknown, as no weights of the model are beside them; they are taken as float32", untyped, len(c.Params))
	}
	c.Groups = append([]checkpoint.Group(nil), c.Groups...)
	for i := range c.Groups {
		g := &c.Groups[i]
		names, invented := &pickle.List{}, &pickle.List{}
		for _, p := range g.Params {
			names.Items = append(names.Items, c.Params[p].Name)
			invented.Items = append(invented.Items, false)
		}
		fields := &pickle.Dict{}
		if len(g.Params) == 1 {
			fields.Set(checkpoint.KeyName, names.Items[0])
		}
		fields.Set(layout.KeyNames, names)
		fields.Set(layout.KeyInvented, invented)
		for _, p := range g.Fields.Pairs {
			fields.Set(p.Key, p.Value)
		}
		g.Fields = fields
	}
}
