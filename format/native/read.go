// Package native reads and writes the state of one process: the state_dict of
// Gefen without FSDP2, and GefenMuon's global states (exact, distributed).
package native

import (
	"fmt"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Is says whether a state is Gefen's, and not another optimizer's: it has Gefen's
// metadata, or momentum as codebook indices.
func Is(s *layout.State) bool {
	for _, g := range s.Groups {
		if g.Metadata != nil {
			return true
		}
	}
	if _, ok := s.Top.Get("gefen_global_step"); ok {
		return true
	}
	for _, e := range s.Entries {
		if e.Fields == nil {
			continue
		}
		if _, ok := e.Fields.Get(checkpoint.KeyIndex); ok {
			return true
		}
	}
	return false
}

// Read fills c from a native state.
func Read(c *checkpoint.Checkpoint, s *layout.State) {
	c.Form, c.Optimizer, c.Layout = checkpoint.Native, checkpoint.Gefen, s.Layout
	r := &reader{c: c, s: s}
	var rank checkpoint.Rank
	rank.Codebook = r.global()
	for g, group := range s.Groups {
		if _, ok := group.Fields.Get("ns_steps"); ok {
			c.Optimizer = checkpoint.Muon
		}
		c.Groups = append(c.Groups, c.ReadGroup(group.Fields, group.Entries, fmt.Sprintf("%s.%d", layout.KeyGroups, g)))
	}
	for i := range s.Entries {
		p, shard := r.parameter(i)
		c.Params = append(c.Params, p)
		rank.Shards = append(rank.Shards, shard)
	}
	c.CheckCodebook(&rank, "codebook")
	c.Ranks = []checkpoint.Rank{rank}
}

type reader struct {
	c *checkpoint.Checkpoint
	s *layout.State
}

// places where a native state keeps what belongs to the whole optimizer: beside
// state and param_groups, and in every group's metadata. A file may have either;
// where it has both they must agree.
var places = [...]struct{ top, metadata string }{
	{"gefen_global_step", "global_step"}, {"gefen_deterministic", "deterministic"}, {"gefen_codebook", "codebook"},
}

// global reads step, policy and codebook.
func (r *reader) global() *tensor.Tensor {
	var values [len(places)]pickle.Value
	for i, place := range places {
		var found []pickle.Value
		if v, ok := r.s.Top.Get(place.top); ok {
			found = append(found, r.resolve(v, place.top))
		}
		for g, group := range r.s.Groups {
			if group.Metadata == nil {
				continue
			}
			if v, ok := group.Metadata.Get(place.metadata); ok {
				found = append(found, r.resolve(v, fmt.Sprintf("%s.%d.%s.%s", layout.KeyGroups, g, layout.KeyMetadata, place.metadata)))
			}
		}
		for _, v := range found {
			if !sameValue(v, found[0]) {
				r.c.Fault(fault.Corrupt, place.top, "the file gives it several times, differently")
			}
		}
		if len(found) > 0 {
			values[i] = found[0]
		}
	}
	if n, ok := values[0].(int64); ok && n >= 0 {
		r.c.GlobalStep = n
	} else if values[0] != nil {
		r.c.Fault(fault.Corrupt, places[0].top, "%s, expected an integer of at least 0", tree.Describe(values[0]))
	}
	if b, ok := values[1].(bool); ok {
		r.c.Deterministic = &b
	} else if values[1] != nil {
		r.c.Fault(fault.Corrupt, places[1].top, "%s, expected True or False", tree.Describe(values[1]))
	}
	book, ok := values[2].(*tensor.Tensor)
	if !ok && values[2] != nil {
		r.c.Fault(fault.Corrupt, places[2].top, "%s, expected a tensor or None", tree.Describe(values[2]))
	}
	return book
}

func (r *reader) resolve(v pickle.Value, item string) pickle.Value {
	v, err := tree.Resolve(v)
	if err != nil {
		r.c.FaultErr(err, item)
	}
	return v
}

// sameValue compares two values of the same place; codebooks by their bytes.
func sameValue(a, b pickle.Value) bool {
	x, ok := a.(*tensor.Tensor)
	y, ok2 := b.(*tensor.Tensor)
	if ok && ok2 {
		p, err := x.ReadAll()
		q, err2 := y.ReadAll()
		return err == nil && err2 == nil && string(p) == string(q)
	}
	return pickle.Equal(a, b)
}

// parameter reads one entry. The file has no shape of the parameter but that of
// its state: a matrix where the second moment is factored, else as many elements
// as there are indices.
func (r *reader) parameter(i int) (checkpoint.Param, checkpoint.Shard) {
	e := r.s.Entries[i]
	group := r.s.Groups[e.Group]
	p := checkpoint.Param{Group: e.Group, Index: e.Index, Grad: true}
	if r.s.Layout != checkpoint.Raw {
		p.FQN = e.Key
	}
	v, _ := group.Fields.Get("sharded_mode")
	p.ShardedMode, _ = v.(string)
	item := layout.KeyState + "." + e.Key
	if e.Fields == nil {
		r.c.Warn(item, "no entry: the parameter starts afresh")
		p.Name = r.name(e, group, nil)
		return p, checkpoint.Shard{}
	}
	p.Name = r.name(e, group, e.Fields)
	state := r.c.ReadState(e.Fields, item)
	p.Shape = shapeOf(state)
	if state != nil {
		r.c.CheckState(state, p.Shape, p.Shape, r.c.Optimizer == checkpoint.Muon, item)
	}
	return p, checkpoint.Shard{LocalShape: p.Shape, State: state}
}

// shapeOf is what a state tells of its parameter's shape.
func shapeOf(s *checkpoint.State) []int64 {
	switch {
	case s == nil:
		return []int64{}
	case s.VRow != nil && s.VCol != nil:
		return []int64{s.VRow.Len(), s.VCol.Len()}
	case s.Index == nil:
		return []int64{}
	case s.NormuonV != nil && s.NormuonV.Len() > 0 && s.Index.Len()%s.NormuonV.Len() == 0:
		return []int64{s.NormuonV.Len(), s.Index.Len() / s.NormuonV.Len()}
	}
	return []int64{s.Index.Len()}
}

// name is the registered name: param_names wins, then the state's, then the key.
func (r *reader) name(e layout.Entry, group layout.Group, fields *pickle.Dict) string {
	if v, ok := group.Fields.Get(layout.KeyNames); ok {
		if names, ok := pickle.Strings(v); ok && e.Index < len(names) {
			return names[e.Index]
		}
		r.c.Fault(fault.Corrupt, fmt.Sprintf("%s.%d.%s", layout.KeyGroups, e.Group, layout.KeyNames), "%s for %d parameters", tree.Describe(v), len(group.Entries))
	}
	if fields != nil {
		v, _ := fields.Get(checkpoint.KeyName)
		if name, ok := r.resolve(v, layout.KeyState+"."+e.Key).(string); ok {
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
