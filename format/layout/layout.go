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
	// Faults are what a loader refuses in the groups themselves.
	Faults []*fault.Error
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
	// MetadataLast says that the metadata stands behind params, as Gefen writes it
	// in one process, and not before, as under FSDP2.
	MetadataLast bool
	Entries      []int
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
			key := tree.Name(id)
			if _, ok := id.(int64); ok {
				s.Layout = checkpoint.Raw
			}
			if used[key] { // O17
				s.Faults = append(s.Faults, fault.New(fault.Corrupt, "parameter %s stands in two groups, or twice in one", key).In(at))
				continue
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
		if key := tree.Name(p.Key); !used[key] {
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
				return g, nil, fault.Within(err, "", join(at, KeyParams))
			}
			var ok bool
			if ids, ok = pickle.Sequence(v); !ok {
				return g, nil, fault.New(fault.Corrupt, "%s, expected a list", tree.Describe(v)).In(join(at, KeyParams))
			}
			for _, id := range ids {
				switch id.(type) {
				case int64, string:
				default:
					return g, nil, fault.New(fault.Corrupt, "a parameter goes by %s, expected a name or a number", tree.Describe(id)).In(join(at, KeyParams))
				}
			}
		case KeyMetadata:
			var err error
			if g.Metadata, err = Dict(p.Value, join(at, KeyMetadata)); err != nil {
				return g, nil, err
			}
		default:
			v, err := tree.Resolve(p.Value)
			if err != nil {
				return g, nil, fault.Within(err, "", join(at, tree.Name(p.Key)))
			}
			g.Fields.Set(p.Key, v)
		}
	}
	return g, ids, nil
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
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

// readFlat reads the flat layout.
func readFlat(d *pickle.Dict) (*State, error) {
	f := &flat{
		State: State{Layout: checkpoint.Flat, Top: &pickle.Dict{}},
		state: map[string]*pickle.Dict{}, options: map[string]*pickle.Dict{},
		byList: map[pickle.Value]int{}, byNames: map[string]int{},
	}
	if err := f.split(d); err != nil {
		return nil, err
	}
	for _, fqn := range f.order {
		if err := f.add(fqn); err != nil {
			return nil, fault.Within(err, "", KeyGroups+"."+fqn)
		}
	}
	f.sort()
	for fqn := range f.state {
		f.Surplus = append(f.Surplus, fqn)
	}
	slices.Sort(f.Surplus)
	return &f.State, nil
}

// flat is a state whose keys are being gathered by parameter. The parameters of
// a group are told by having the same param_names; where there are none, by
// having the same options as the one before.
type flat struct {
	State
	state, options map[string]*pickle.Dict // by FQN
	order          []string                // FQNs in order of their options
	byList         map[pickle.Value]int    // group by its list of param_names
	byNames        map[string]int          // group by the names in it
	names          []map[string]int        // of each group: position by name
	previous       *pickle.Dict            // options of the parameter before
}

// split sorts the keys by parameter.
func (f *flat) split(d *pickle.Dict) error {
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		if rest, ok := strings.CutPrefix(key, KeyState+"."); ok {
			fqn, field := splitStateKey(rest)
			put(f.state, fqn, field, p.Value)
			continue
		}
		rest, ok := strings.CutPrefix(key, KeyGroups+".")
		if !ok {
			f.Top.Set(p.Key, p.Value)
			continue
		}
		dot := strings.LastIndexByte(rest, '.')
		if dot < 0 {
			return fault.New(fault.Corrupt, "the key names no parameter").In(key)
		}
		if put(f.options, rest[:dot], rest[dot+1:], p.Value) {
			f.order = append(f.order, rest[:dot])
		}
	}
	return nil
}

// put sets a field of a parameter, and says whether the parameter is new.
func put(to map[string]*pickle.Dict, fqn, field string, value pickle.Value) bool {
	known := to[fqn]
	if known == nil {
		to[fqn] = pickle.NewDict(field, value)
		return true
	}
	known.Set(field, value)
	return false
}

// add puts a parameter into its group.
func (f *flat) add(fqn string) error {
	options := f.options[fqn]
	g, err := f.group(options)
	if err != nil {
		return err
	}
	f.previous = options
	e := Entry{Key: fqn, Fields: f.state[fqn], Group: g, Index: len(f.names[g])}
	if i, ok := f.names[g][strings.ToLower(fqn)]; ok {
		e.Index = i
	}
	f.Groups[g].Entries = append(f.Groups[g].Entries, len(f.Entries))
	f.Entries = append(f.Entries, e)
	delete(f.state, fqn)
	return nil
}

// group finds the group of a parameter with such options, or begins it.
func (f *flat) group(options *pickle.Dict) (int, error) {
	v, _ := options.Get(KeyNames)
	list, err := tree.Resolve(v)
	if err != nil {
		return 0, err
	}
	if list == nil {
		if f.previous != nil && !has(f.previous, KeyNames) {
			if same, err := tree.Same(f.previous, options); same || err != nil {
				return len(f.Groups) - 1, err
			}
		}
		return f.begin(options, nil)
	}
	wrong := fault.New(fault.Corrupt, "it is %s, expected a list of names", tree.Describe(list)).In(KeyNames)
	if _, ok := pickle.Sequence(list); !ok {
		return 0, wrong
	}
	if g, ok := f.byList[list]; ok { // a file has one list for all
		return g, nil
	}
	names, ok := pickle.Strings(list)
	if !ok {
		return 0, wrong
	}
	id := strings.Join(names, "\x00")
	g, ok := f.byNames[id]
	if !ok {
		if g, err = f.begin(options, names); err != nil {
			return 0, err
		}
		f.byNames[id] = g
	}
	f.byList[list] = g
	return g, nil
}

// begin adds a group.
func (f *flat) begin(options *pickle.Dict, names []string) (int, error) {
	group, _, err := splitGroup(options, "")
	if err != nil {
		return 0, err
	}
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[strings.ToLower(name)] = i
	}
	f.Groups, f.names = append(f.Groups, group), append(f.names, index)
	return len(f.Groups) - 1, nil
}

func has(d *pickle.Dict, key string) bool { _, ok := d.Get(key); return ok }

// sort puts the entries group by group, in the order of their param_names.
func (f *flat) sort() {
	var entries []Entry
	for g := range f.Groups {
		group := &f.Groups[g]
		slices.SortStableFunc(group.Entries, func(a, b int) int { return f.Entries[a].Index - f.Entries[b].Index })
		for i, e := range group.Entries {
			entry := f.Entries[e]
			entry.Index = i
			group.Entries[i] = len(entries)
			entries = append(entries, entry)
		}
	}
	f.Entries = entries
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

// CheckVersion checks format_version of a group's metadata, the part that a
// loader of any form reads. Version 1 is written with native states, 3 with
// rank-local ones; 2 is read and written by nothing.
func CheckVersion(c *checkpoint.Checkpoint, metadata *pickle.Dict, group string) {
	item := group + "." + KeyMetadata + ".format_version"
	v, _ := metadata.Get("format_version")
	v, err := tree.Resolve(v)
	n, ok := v.(int64)
	switch {
	case err != nil:
		c.FaultErr(err, item)
	case !ok || n < 1 || n > 3:
		c.Fault(fault.Unsupported, item, "it is %s, expected 1, 2 or 3", tree.Describe(v))
	default:
		c.SeeVersion("checkpoint metadata", strconv.FormatInt(n, 10))
	}
}
