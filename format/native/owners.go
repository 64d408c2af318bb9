package native

import (
	"fmt"
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Where GefenMuon's distributed mode keeps its manifest of owners: beside state
// and param_groups, and in every group's metadata, for savers drop the former.
const (
	keyOwners         = "gefen_muon_distributed"
	keyOwnersMetadata = "muon_distributed_state"
	ownership         = "stable_full_param_index_v1"
)

// owners reads the manifest, if there is one, and checks it: rules M1 to M5 of
// docs/rules.md. It knows the parameters' shapes.
func (r *reader) owners() {
	var found []*pickle.Dict
	look := func(d *pickle.Dict, key, item string) {
		v, _ := d.Get(key)
		v, err := tree.Force(r.resolve(v, item))
		if err != nil {
			r.c.FaultErr(err, item)
			return
		}
		if v == nil {
			return
		}
		m, ok := pickle.AsDict(v)
		if !ok {
			r.c.Fault(fault.Corrupt, item, "it is %s, expected a dict", tree.Describe(v))
			return
		}
		if len(found) > 0 && m != found[0] && !pickle.Equal(m, found[0]) {
			r.c.Fault(fault.Corrupt, item, "there are several manifests of owners, and they differ") // M1
			return
		}
		found = append(found, m)
	}
	look(r.s.Top, keyOwners, keyOwners)
	for g, group := range r.s.Groups {
		if group.Metadata != nil {
			look(group.Metadata, keyOwnersMetadata, groupItem(g)+"."+layout.KeyMetadata+"."+keyOwnersMetadata)
		}
	}
	if len(found) == 0 {
		return
	}
	r.c.Owners = found[0]
	if err := r.manifest(found[0]); err != nil {
		r.c.FaultErr(err, keyOwners)
	}
}

// manifest checks a manifest of owners.
func (r *reader) manifest(m *pickle.Dict) error {
	version, _ := value(m, "version").(int64)
	switch { // M2
	case version != 1 && version != 2:
		return fault.New(fault.Unsupported, "version %s, expected 1 or 2", tree.Describe(value(m, "version")))
	case value(m, "ownership") != ownership:
		return fault.New(fault.Unsupported, "ownership is %s, expected %q", tree.Describe(value(m, "ownership")), ownership)
	case value(m, "consolidated") != true:
		return fault.New(fault.Incomplete, "the state was not gathered from its owners").
			WithHint("call state_dict() on every rank, and save what rank 0 gets")
	case version == 1:
		return nil
	}
	groups, ok := pickle.Sequence(value(m, "groups"))
	if !ok {
		return fault.New(fault.Corrupt, "groups is %s, expected a list", tree.Describe(value(m, "groups")))
	}
	byID := make(map[pickle.Value]int, 2*len(r.s.Entries))
	for i, e := range r.s.Entries {
		byID[e.Key], byID[int64(i)] = i, i
	}
	numbered := false
	for g, v := range groups {
		item := fmt.Sprintf("groups.%d", g)
		group, err := layout.Dict(v, item)
		if err != nil {
			return err
		}
		world, _ := value(group, "world_size").(int64)
		params, ok := pickle.Sequence(value(group, "params"))
		if !ok || world < 1 { // M3
			return fault.New(fault.Corrupt, "a group takes a world_size and params").In(item)
		}
		for i, v := range params {
			d, err := layout.Dict(v, "")
			if err == nil {
				err = r.owned(d, int64(i)%world, byID)
			}
			if err != nil {
				return fault.Within(err, "", fmt.Sprintf("%s.params.%d", item, i))
			}
			_, isNumber := value(d, "saved_id").(int64)
			numbered = numbered || isNumber
		}
	}
	if numbered && r.s.Layout != checkpoint.Raw { // M4: how get_optimizer_state_dict leaves it
		r.c.WarnErr(fault.New(fault.Unsupported, "the manifest numbers the parameters, and the groups name them: set_optimizer_state_dict refuses that").
			WithHint("convert it, or load the file with optimizer.load_state_dict after numbering the state"), keyOwners)
	}
	return nil
}

// owned checks one parameter of a manifest (M4, M5), and takes its shape.
func (r *reader) owned(d *pickle.Dict, owner int64, byID map[pickle.Value]int) error {
	id := value(d, "saved_id")
	switch id.(type) {
	case int64, string:
	default:
		return fault.New(fault.Corrupt, "saved_id is %s, expected a number or a name", tree.Describe(id))
	}
	i, ok := byID[id]
	if !ok {
		return fault.New(fault.Corrupt, "saved_id %s is no parameter's", tree.Describe(id))
	}
	p := &r.c.Params[i]
	name, _ := value(d, "name").(string)
	shape, ok := pickle.Ints(value(d, "shape"))
	keys, ok2 := pickle.Strings(value(d, "state_keys"))
	switch {
	case !ok || len(shape) != 2 || shape[0] < 0 || shape[1] < 0:
		return fault.New(fault.Corrupt, "the shape is %s, expected that of a matrix", tree.Describe(value(d, "shape")))
	case value(d, "owner") != owner:
		return fault.New(fault.Corrupt, "the owner is %s, expected %d", tree.Describe(value(d, "owner")), owner)
	case !strings.EqualFold(name, p.Name):
		return fault.New(fault.Corrupt, "the name is %q, and the parameter's %q", name, p.Name)
	case !ok2:
		return fault.New(fault.Corrupt, "state_keys is %s, expected names", tree.Describe(value(d, "state_keys")))
	}
	p.Shape = shape
	var have []string
	if fields := r.s.Entries[i].Fields; fields != nil {
		for _, pair := range fields.Pairs {
			have = append(have, tree.Name(pair.Key))
		}
	}
	slices.Sort(have)
	slices.Sort(keys)
	if !slices.Equal(have, keys) {
		return fault.New(fault.Corrupt, "the state has the keys %s, and the manifest says %s", strings.Join(have, " "), strings.Join(keys, " "))
	}
	if initialized := len(have) > 1; value(d, "initialized") != initialized {
		return fault.New(fault.Corrupt, "initialized is %s, and the state has %d keys", tree.Describe(value(d, "initialized")), len(have))
	}
	return nil
}

// ownersFor is the manifest with the ids that parameters have in a layout.
func ownersFor(c *checkpoint.Checkpoint, l checkpoint.Layout) *pickle.Dict {
	byID := make(map[pickle.Value]int, 2*len(c.Params))
	for i := range c.Params {
		byID[c.Params[i].Key()], byID[int64(i)] = i, i
	}
	return renumber(c.Owners, func(id pickle.Value) pickle.Value {
		switch id.(type) {
		case int64, string:
		default:
			return id
		}
		i, ok := byID[id]
		switch {
		case !ok:
			return id
		case l == checkpoint.Raw:
			return int64(i)
		}
		return c.Params[i].Key()
	})
}

// renumber copies a manifest with every saved_id replaced.
func renumber(m *pickle.Dict, id func(pickle.Value) pickle.Value) *pickle.Dict {
	groups, _ := pickle.Sequence(value(m, "groups"))
	list := &pickle.List{}
	for _, v := range groups {
		group, _ := pickle.AsDict(v)
		params, _ := pickle.Sequence(value(group, "params"))
		out := &pickle.List{}
		for _, v := range params {
			d, _ := pickle.AsDict(v)
			d = &pickle.Dict{Pairs: slices.Clone(d.Pairs)}
			d.Set("saved_id", id(value(d, "saved_id")))
			out.Items = append(out.Items, d)
		}
		copied := &pickle.Dict{Pairs: slices.Clone(group.Pairs)}
		copied.Set("params", out)
		list.Items = append(list.Items, copied)
	}
	out := &pickle.Dict{Pairs: slices.Clone(m.Pairs)}
	if groups != nil {
		out.Set("groups", list)
	}
	return out
}
