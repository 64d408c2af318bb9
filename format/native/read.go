// Package native reads and writes the state of one process: the state_dict of
// Gefen without FSDP2, and GefenMuon's global states (exact, distributed), which
// any number of ranks load.
package native

import (
	"fmt"
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Is says whether a state is Gefen's, and not another optimizer's: it has Gefen's
// metadata, or momentum as codebook indices.
func Is(s *layout.State) bool {
	if _, ok := s.Top.Get(places[0].top); ok {
		return true
	}
	return slices.ContainsFunc(s.Groups, func(g layout.Group) bool { return g.Metadata != nil }) ||
		slices.ContainsFunc(s.Entries, func(e layout.Entry) bool {
			if e.Fields == nil {
				return false
			}
			_, ok := e.Fields.Get(checkpoint.KeyIndex)
			return ok
		})
}

// Read fills c from a native state.
func Read(c *checkpoint.Checkpoint, s *layout.State) {
	c.Form, c.Optimizer, c.Layout = checkpoint.Native, checkpoint.Gefen, s.Layout
	r := &reader{c: c, s: s}
	rank := checkpoint.Rank{Shards: make([]checkpoint.Shard, len(s.Entries))}
	rank.Codebook = r.common()
	for g, group := range s.Groups {
		if _, ok := group.Fields.Get("ns_steps"); ok {
			c.Optimizer = checkpoint.Muon
		}
		c.Groups = append(c.Groups, c.ReadGroup(group.Fields, group.Entries, groupItem(g)))
	}
	c.Params = make([]checkpoint.Param, len(s.Entries))
	for i := range s.Entries {
		r.parameter(i)
	}
	r.owners()
	for i := range s.Entries {
		r.state(i, &rank.Shards[i])
	}
	c.CheckCodebook(&rank, "codebook")
	c.Ranks = []checkpoint.Rank{rank}
	r.legacy()
}

type reader struct {
	c *checkpoint.Checkpoint
	s *layout.State
	// upstream says that some state is of the Gefen that Gefen-X comes from.
	upstream bool
	// refused says that AdamW's moments are not whole tensors.
	refused bool
}

func groupItem(g int) string { return fmt.Sprintf("%s.%d", layout.KeyGroups, g) }

func (r *reader) item(i int) string { return layout.KeyState + "." + r.s.Entries[i].Key }

// resolve reads a value; one that cannot be read is a fault and nil.
func (r *reader) resolve(v pickle.Value, item string) pickle.Value {
	v, err := tree.Resolve(v)
	if err != nil {
		r.c.FaultErr(err, item)
		return nil
	}
	return v
}

// parameter reads what there is about a parameter but its state.
func (r *reader) parameter(i int) {
	e := r.s.Entries[i]
	group := r.s.Groups[e.Group]
	p := &r.c.Params[i]
	*p = checkpoint.Param{Group: e.Group, Index: e.Index, Grad: true, Name: r.name(i)}
	if r.s.Layout != checkpoint.Raw {
		p.FQN = e.Key
	}
	v, _ := group.Fields.Get("sharded_mode")
	p.ShardedMode, _ = v.(string)
	v, _ = group.Fields.Get(layout.KeyInvented)
	invented, _ := pickle.Sequence(v)
	p.Synthesized = e.Index < len(invented) && invented[e.Index] == true
}

// name is the registered name: param_names wins, then the state's, then the
// group's, then the key.
func (r *reader) name(i int) string {
	e := r.s.Entries[i]
	group := r.s.Groups[e.Group]
	if v, ok := group.Fields.Get(layout.KeyNames); ok {
		names, ok := pickle.Sequence(v)
		if ok && len(names) == len(group.Entries) {
			if name, ok := names[e.Index].(string); ok {
				return name
			}
		}
		if e.Index == 0 {
			r.c.Fault(fault.Corrupt, groupItem(e.Group)+"."+layout.KeyNames, "it is %s, for %d parameters", tree.Describe(v), len(group.Entries))
		}
	}
	if e.Fields != nil {
		v, _ := e.Fields.Get(checkpoint.KeyName)
		if name, ok := r.resolve(v, r.item(i)).(string); ok {
			return name
		}
	}
	if v, ok := group.Fields.Get(checkpoint.KeyName); ok && len(group.Entries) == 1 {
		if name, ok := v.(string); ok {
			return strings.ToLower(name)
		}
	}
	return strings.ToLower(e.Key)
}

// state reads the state of a parameter. The file has no shape of the parameter
// but what its state tells of it.
func (r *reader) state(i int, s *checkpoint.Shard) {
	e, p, item := r.s.Entries[i], &r.c.Params[i], r.item(i)
	if e.Fields == nil {
		r.c.Warn(item, "there is no entry for the parameter: it starts afresh")
		s.LocalShape = p.Shape
		return
	}
	fields := e.Fields
	if isUpstream(fields) {
		r.upstream = true
		var err error
		if fields, err = expand(fields); err != nil {
			r.c.FaultErr(err, item)
			return
		}
	}
	s.State = r.c.ReadState(fields, item)
	if p.Shape == nil {
		p.Shape = shapeOf(s.State)
	}
	s.LocalShape = p.Shape
	r.c.CheckState(p, s, item)
}

// shapeOf is what a state tells of its parameter's shape: a matrix where the
// second moment is factored or NorMuon has rows, else a vector of as many elements
// as there are indices.
func shapeOf(s *checkpoint.State) []int64 {
	switch {
	case s == nil || s.Index == nil:
		return []int64{0}
	case s.VRow != nil && s.VCol != nil:
		return []int64{s.VRow.Len(), s.VCol.Len()}
	case s.NormuonV != nil && s.NormuonV.Len() > 0 && s.Index.Len()%s.NormuonV.Len() == 0:
		return []int64{s.NormuonV.Len(), s.Index.Len() / s.NormuonV.Len()}
	}
	return []int64{s.Index.Len()}
}

// legacy says which older writer the state is of, if any.
func (r *reader) legacy() {
	switch {
	case r.upstream:
		r.c.WarnErr(fault.New(fault.Unsupported, "the state is that of upstream Gefen, which Gefen-X refuses; it is read as Gefen-X would write it").
			WithHint("convert it"), "")
	case len(r.s.Groups) > 1 && !slices.ContainsFunc(r.s.Groups, func(g layout.Group) bool {
		_, named := g.Fields.Get(layout.KeyNames)
		return named || len(g.Entries) != 1
	}):
		r.c.Warn("", "every parameter is a group of its own, as Gefen-X wrote it before 0.3; a loader joins them")
	}
}

// ReadAdamW fills c from the state of torch's AdamW, the backup half of a
// GefenMuonHybrid. Its moments are kept as they are.
func ReadAdamW(c *checkpoint.Checkpoint, s *layout.State) {
	c.Form, c.Optimizer, c.Layout = checkpoint.Native, checkpoint.AdamW, s.Layout
	r := &reader{c: c, s: s}
	rank := checkpoint.Rank{Shards: make([]checkpoint.Shard, len(s.Entries))}
	for g, group := range s.Groups {
		c.Groups = append(c.Groups, c.ReadGroup(group.Fields, group.Entries, groupItem(g)))
		if betas, ok := pickle.Sequence(value(group.Fields, "betas")); ok && len(betas) == 2 {
			last := &c.Groups[g]
			last.Beta1, _ = betas[0].(float64)
			last.Beta2, _ = betas[1].(float64)
		}
	}
	c.Params = make([]checkpoint.Param, len(s.Entries))
	for i, e := range s.Entries {
		r.parameter(i)
		p, shard := &c.Params[i], &rank.Shards[i]
		p.Name = strings.ToLower(p.Name)
		p.Shape = []int64{0}
		if e.Fields != nil {
			shard.State = r.adamW(e.Fields, p, r.item(i))
		}
		shard.LocalShape = p.Shape
	}
	c.Ranks = []checkpoint.Rank{rank}
}

func value(d *pickle.Dict, key string) pickle.Value { v, _ := d.Get(key); return v }

// adamW reads the state of one parameter: a step and tensors of its shape.
func (r *reader) adamW(d *pickle.Dict, p *checkpoint.Param, item string) *checkpoint.State {
	s := &checkpoint.State{Step: checkpoint.Absent, VmeanStep: checkpoint.Absent, FactoredStep: checkpoint.Absent,
		NormuonStep: checkpoint.Absent, Extra: &pickle.Dict{}}
	for _, pair := range d.Pairs {
		key := tree.Name(pair.Key)
		v := r.resolve(pair.Value, item+"."+key)
		s.Extra.Set(pair.Key, v)
		t, isTensor := v.(*tensor.Tensor)
		switch {
		case key == checkpoint.KeyStep:
			n, err := checkpoint.Counter(v)
			if err != nil {
				r.c.FaultErr(err, item+"."+key)
			}
			s.Step = n
			r.c.GlobalStep = max(r.c.GlobalStep, n)
		case !isTensor:
			r.notWhole(v, item+"."+key)
		default:
			p.Shape = t.Shape
		}
	}
	return s
}

// notWhole refuses what is no whole tensor, once.
func (r *reader) notWhole(v pickle.Value, item string) {
	if r.refused {
		return
	}
	r.refused = true
	d, ok := v.(*torchfile.DTensor)
	if !ok {
		r.c.Fault(fault.Corrupt, item, "it is %s, expected a tensor", tree.Describe(v))
		return
	}
	r.c.FaultErr(fault.New(fault.Unsupported, "it is a DTensor of %v, of which this file has one rank's rows: AdamW's moments under FSDP2 are read only as whole tensors", d.Shape).
		WithHint("gather them before saving, with get_optimizer_state_dict of the backup half or full_tensor()"), item)
}
