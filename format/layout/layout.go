// Package layout knows how the keys of an optimizer's state are arranged:
// nested, flat or raw. It turns each into one list of entries and groups, and
// back.
package layout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// The keys of an optimizer's state dict.
const (
	KeyState    = "state"
	KeyGroups   = "param_groups"
	KeyParams   = "params"
	KeyNames    = "param_names"
	KeyInvented = "param_names_synthesized"
	KeyMetadata = "_gefen_checkpoint_metadata"
)

// State is an optimizer's state dict, whatever its layout.
type State struct {
	Layout  checkpoint.Layout
	Entries []Entry // group by group
	Groups  []Group
	// Top is what stands beside state and param_groups: gefen_global_step and
	// the like, in the raw layout.
	Top *pickle.Dict
	// Surplus are state entries that no group names; a loader ignores them.
	Surplus []string
}

// Entry is one parameter.
type Entry struct {
	Key    string       // FQN, or the decimal id of the raw layout
	Fields *pickle.Dict // nil where the file has no entry
	Group  int
	Index  int // within the group
}

// Group is one parameter group: its dict without params and metadata.
type Group struct {
	Fields   *pickle.Dict
	Metadata *pickle.Dict // nil where the file has none
	Entries  []int
}

// Is says whether a dict looks like an optimizer's state in some layout.
func Is(d *pickle.Dict) bool {
	if _, ok := d.Get(KeyState); ok {
		_, ok = d.Get(KeyGroups)
		return ok
	}
	return isFlat(d)
}

func isFlat(d *pickle.Dict) bool {
	var state, groups bool
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		state = state || strings.HasPrefix(key, KeyState+".")
		groups = groups || strings.HasPrefix(key, KeyGroups+".")
	}
	return state && groups
}

// Read arranges an optimizer's state dict. Errors are Corrupt faults.
func Read(d *pickle.Dict) (*State, error) {
	if isFlat(d) {
		return readFlat(d)
	}
	return readNested(d)
}

// Dict resolves v and views it as a dict.
func Dict(v pickle.Value, item string) (*pickle.Dict, error) {
	v, err := tree.Resolve(v)
	if err != nil {
		return nil, fault.Within(err, "", item)
	}
	d, ok := pickle.AsDict(v)
	if !ok {
		return nil, fault.New(fault.Corrupt, "%s, expected a dict", tree.Describe(v)).In(item)
	}
	return d, nil
}

// readNested reads the nested and the raw layout: they differ in whether
// parameters go by FQN or by number.
func readNested(d *pickle.Dict) (*State, error) {
	s := &State{Layout: checkpoint.Nested, Top: &pickle.Dict{}}
	for _, p := range d.Pairs {
		if p.Key != KeyState && p.Key != KeyGroups {
			s.Top.Set(p.Key, p.Value)
		}
	}
	v, _ := d.Get(KeyState)
	state, err := Dict(v, KeyState)
	if err != nil {
		return nil, err
	}
	v, _ = d.Get(KeyGroups)
	if v, err = tree.Resolve(v); err != nil {
		return nil, err
	}
	groups, ok := pickle.Sequence(v)
	if !ok {
		return nil, fault.New(fault.Corrupt, "%s, expected a list of groups", tree.Describe(v)).In(KeyGroups)
	}
	used := map[string]bool{}
	for g, v := range groups {
		at := fmt.Sprintf("%s.%d", KeyGroups, g)
		dict, err := Dict(v, at)
		if err != nil {
			return nil, err
		}
		group, ids, err := splitGroup(dict, at)
		if err != nil {
			return nil, err
		}
		for i, id := range ids {
			key := fmt.Sprint(id)
			if _, ok := id.(int64); ok {
				s.Layout = checkpoint.Raw
			}
			if used[key] {
				return nil, fault.New(fault.Corrupt, "parameter %s stands in two groups, or twice in one", key).In(at)
			}
			used[key] = true
			e := Entry{Key: key, Group: g, Index: i}
			if v, ok := find(state, id); ok {
				if e.Fields, err = Dict(v, KeyState+"."+key); err != nil {
					return nil, err
				}
			}
			group.Entries = append(group.Entries, len(s.Entries))
			s.Entries = append(s.Entries, e)
		}
		s.Groups = append(s.Groups, group)
	}
	for _, p := range state.Pairs {
		if key := fmt.Sprint(p.Key); !used[key] {
			s.Surplus = append(s.Surplus, key)
		}
	}
	return s, nil
}

// find looks up a parameter by its id: a directory turns integer keys into
// strings, but leaves the ids in params integers.
func find(state *pickle.Dict, id pickle.Value) (pickle.Value, bool) {
	if n, ok := id.(int64); ok {
		if v, ok := state.GetInt(n); ok {
			return v, true
		}
		return state.Get(strconv.FormatInt(n, 10))
	}
	key, _ := id.(string)
	return state.Get(key)
}

// splitGroup takes params and metadata out of a group's dict.
func splitGroup(d *pickle.Dict, at string) (Group, []pickle.Value, error) {
	g := Group{Fields: &pickle.Dict{}}
	var ids []pickle.Value
	for _, p := range d.Pairs {
		switch p.Key {
		case KeyParams:
			v, err := tree.Resolve(p.Value)
			if err != nil {
				return g, nil, fault.Within(err, "", at+"."+KeyParams)
			}
			var ok bool
			if ids, ok = pickle.Sequence(v); !ok {
				return g, nil, fault.New(fault.Corrupt, "%s, expected a list", tree.Describe(v)).In(at + "." + KeyParams)
			}
			for _, id := range ids {
				switch id.(type) {
				case int64, string:
				default:
					return g, nil, fault.New(fault.Corrupt, "a parameter goes by %s, expected a name or a number", tree.Describe(id)).In(at + "." + KeyParams)
				}
			}
		case KeyMetadata:
			var err error
			if g.Metadata, err = Dict(p.Value, at+"."+KeyMetadata); err != nil {
				return g, nil, err
			}
		default:
			v, err := tree.Resolve(p.Value)
			if err != nil {
				return g, nil, fault.Within(err, "", fmt.Sprintf("%s.%v", at, p.Key))
			}
			g.Fields.Set(p.Key, v)
		}
	}
	return g, ids, nil
}

// stateKeys are the known ends of flat state keys; an FQN has dots of its own.
var stateKeys = []string{
	checkpoint.KeyName, checkpoint.KeyPeriod, checkpoint.KeyStep, checkpoint.KeyIndex, checkpoint.KeyMagnitude, checkpoint.KeyVmean,
	checkpoint.KeyVmeanStep, checkpoint.KeyVRow, checkpoint.KeyVCol, checkpoint.KeyFactoredStep, checkpoint.KeyNormuonV, checkpoint.KeyNormuonStep,
	PayloadPrefix, MemberKey,
}

// PayloadPrefix and MemberKey mark the entries of a rank-local state.
const (
	PayloadPrefix = "_gefen_rank_local_payload_"
	MemberKey     = "_gefen_rank_local_member"
)

// readFlat reads the flat layout. Which parameters form a group is told by
// their equal param_names.
func readFlat(d *pickle.Dict) (*State, error) {
	s := &State{Layout: checkpoint.Flat, Top: &pickle.Dict{}}
	state := map[string]*pickle.Dict{}
	options := map[string]*pickle.Dict{}
	var order []string // FQNs in order of their groups' keys
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		switch {
		case strings.HasPrefix(key, KeyState+"."):
			fqn, field := splitStateKey(strings.TrimPrefix(key, KeyState+"."))
			if state[fqn] == nil {
				state[fqn] = &pickle.Dict{}
			}
			state[fqn].Set(field, p.Value)
		case strings.HasPrefix(key, KeyGroups+"."):
			rest := strings.TrimPrefix(key, KeyGroups+".")
			dot := strings.LastIndexByte(rest, '.')
			if dot < 0 {
				return nil, fault.New(fault.Corrupt, "the key names no parameter").In(key)
			}
			fqn, field := rest[:dot], rest[dot+1:]
			if options[fqn] == nil {
				options[fqn] = &pickle.Dict{}
				order = append(order, fqn)
			}
			options[fqn].Set(field, p.Value)
		default:
			s.Top.Set(p.Key, p.Value)
		}
	}
	groupOf := map[string]int{}
	for _, fqn := range order {
		v, _ := options[fqn].Get(KeyNames)
		if v, _ = tree.Resolve(v); v == nil {
			return nil, fault.New(fault.Corrupt, "without param_names a flat state does not say which group parameter %s is in", fqn).In(KeyGroups + "." + fqn)
		}
		names, ok := pickle.Strings(v)
		if !ok {
			return nil, fault.New(fault.Corrupt, "%s, expected a list of names", tree.Describe(v)).In(KeyGroups + "." + fqn + "." + KeyNames)
		}
		id := strings.Join(names, "\x00")
		g, ok := groupOf[id]
		if !ok {
			group, _, err := splitGroup(options[fqn], KeyGroups+"."+fqn)
			if err != nil {
				return nil, err
			}
			g, groupOf[id] = len(s.Groups), len(s.Groups)
			s.Groups = append(s.Groups, group)
		}
		group := &s.Groups[g]
		group.Entries = append(group.Entries, len(s.Entries))
		s.Entries = append(s.Entries, Entry{Key: fqn, Fields: state[fqn], Group: g, Index: slices.Index(names, strings.ToLower(fqn))})
		delete(state, fqn)
	}
	s.sortFlat()
	for fqn := range state {
		s.Surplus = append(s.Surplus, fqn)
	}
	slices.Sort(s.Surplus)
	return s, nil
}

// sortFlat puts the entries of each group in the order of its param_names.
func (s *State) sortFlat() {
	var entries []Entry
	for g := range s.Groups {
		group := &s.Groups[g]
		slices.SortStableFunc(group.Entries, func(a, b int) int { return s.Entries[a].Index - s.Entries[b].Index })
		for i, e := range group.Entries {
			entry := s.Entries[e]
			entry.Index = i
			group.Entries[i] = len(entries)
			entries = append(entries, entry)
		}
	}
	s.Entries = entries
}

func splitStateKey(key string) (fqn, field string) {
	for _, known := range stateKeys {
		i := strings.LastIndex(key, "."+known)
		if i < 0 {
			continue
		}
		end := key[i+1+len(known):]
		if _, err := strconv.Atoi(end); end == "" || known == PayloadPrefix && err == nil {
			return key[:i], key[i+1:]
		}
	}
	i := strings.LastIndexByte(key, '.')
	if i < 0 {
		return key, ""
	}
	return key[:i], key[i+1:]
}
