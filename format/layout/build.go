package layout

import (
	"strconv"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
)

// Build arranges a state in the layout l: the inverse of Read. Entries of the
// raw layout are numbered in order; the others go by their keys. Top is kept in
// the raw layout only: get_optimizer_state_dict drops it too.
func (s *State) Build(l checkpoint.Layout) *pickle.Dict {
	if l == checkpoint.Flat {
		return s.buildFlat()
	}
	id := func(e int) pickle.Value {
		if l == checkpoint.Raw {
			return int64(e)
		}
		return s.Entries[e].Key
	}
	state := &pickle.Dict{}
	for e := range s.Entries {
		if s.Entries[e].Fields != nil {
			state.Set(id(e), s.Entries[e].Fields)
		}
	}
	groups := &pickle.List{}
	for _, g := range s.Groups {
		dict := &pickle.Dict{Pairs: append([]pickle.Pair(nil), g.Fields.Pairs...)}
		params := &pickle.List{}
		for _, e := range g.Entries {
			params.Items = append(params.Items, id(e))
		}
		if g.Metadata != nil && !g.MetadataLast {
			dict.Set(KeyMetadata, g.Metadata)
		}
		dict.Set(KeyParams, params)
		if g.Metadata != nil {
			dict.Set(KeyMetadata, g.Metadata)
		}
		groups.Items = append(groups.Items, dict)
	}
	out := pickle.NewDict(KeyState, state, KeyGroups, groups)
	if l == checkpoint.Raw && s.Top != nil {
		out.Pairs = append(out.Pairs, s.Top.Pairs...)
	}
	return out
}

func (s *State) buildFlat() *pickle.Dict {
	out := &pickle.Dict{}
	for _, e := range s.Entries {
		if e.Fields == nil {
			continue
		}
		for _, p := range e.Fields.Pairs {
			key, _ := p.Key.(string)
			out.Pairs = append(out.Pairs, pickle.Pair{Key: KeyState + "." + e.Key + "." + key, Value: p.Value})
		}
	}
	for _, e := range s.Entries {
		g := s.Groups[e.Group]
		prefix := KeyGroups + "." + e.Key + "."
		for _, p := range g.Fields.Pairs {
			key, _ := p.Key.(string)
			out.Pairs = append(out.Pairs, pickle.Pair{Key: prefix + key, Value: p.Value})
		}
		if g.Metadata != nil {
			out.Pairs = append(out.Pairs, pickle.Pair{Key: prefix + KeyMetadata, Value: g.Metadata})
		}
	}
	return out
}

// PayloadKey is the key of rank r's payload.
func PayloadKey(rank int) string { return PayloadPrefix + strconv.Itoa(rank) }
