package dense

import (
	"fmt"
	"slices"
	"strconv"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// formatVersion is the only version that Gefen-X 0.5 loads.
const formatVersion = 2

// The keys beside the slots.
const (
	keyVersion    = "format_version"
	keyStep       = "global_step"
	keyDet        = "deterministic"
	keySlots      = "slot_count"
	keyGroups     = "group_count"
	keyIdentities = "param_identities"
	keyHypers     = "param_group_hypers"
)

// hypers are the keys of a group's hyperparameters, in the order in which they
// are written.
var hypers = []string{"lr", "beta1", "beta2", "eps", "weight_decay"}

// slotKey is the key of one field of a slot.
func slotKey(i int, field string) string { return fmt.Sprintf("slot_%08d.%s", i, field) }

// Is says whether a dict holds dense slots.
func Is(d *pickle.Dict) bool {
	_, slots := d.Get(keySlots)
	_, step := d.Get(keyStep)
	_, first := d.Get(slotKey(0, "momentum"))
	return slots && step || first
}

// Read fills c from the dict of a dense state.
func Read(c *checkpoint.Checkpoint, d *pickle.Dict) {
	c.Form, c.Optimizer = checkpoint.Dense, checkpoint.Gefen
	r := &reader{c: c, d: d}
	if version := r.integer(keyVersion); version != formatVersion {
		c.Faults = append(c.Faults, fault.New(fault.Unsupported, "dense format version %d, expected %d", version, formatVersion).In(keyVersion).File(c.Path).
			WithHint("version 1 has no parameter names: load it with the Gefen-X that wrote it and save again"))
		return
	}
	c.SeeVersion("dense", strconv.Itoa(formatVersion))
	if v, ok := d.Get(KeyOrigin); ok {
		v, err := tree.Resolve(v)
		if err != nil {
			c.FaultErr(err, KeyOrigin)
		}
		c.Origin, _ = pickle.AsDict(v)
	}
	c.GlobalStep = r.integer(keyStep)
	det := r.integer(keyDet) != 0
	c.Deterministic = &det
	slots, groups := r.integer(keySlots), r.integer(keyGroups)
	if n := int64(len(d.Pairs)); slots < 0 || slots > n || groups < 0 || groups > n && groups > slots {
		c.Fault(fault.Corrupt, keySlots, "%d slots in %d groups, the state has %d entries", slots, groups, n)
		return
	}
	r.groups(int(groups))
	if !r.parameters(int(slots)) {
		return
	}
	for i := range c.Params {
		c.Slots = append(c.Slots, r.slot(i))
	}
	r.repair()
	for _, s := range c.Slots {
		if s.Momentum != nil {
			c.World = max(c.World, len(s.Momentum.Chunks))
		}
	}
}

type reader struct {
	c *checkpoint.Checkpoint
	d *pickle.Dict
	// initialized, step, vmean_step of each slot as they stand in the file
	counters [][3]int64
}

// integer reads a scalar, an integer or a tensor of one element (rules D1, D2, D7);
// what is missing or wrong is a fault and -1.
func (r *reader) integer(key string) int64 {
	v, ok := r.d.Get(key)
	if !ok {
		r.c.Fault(fault.Corrupt, key, "the dense state has no such key")
		return -1
	}
	v, err := tree.Resolve(v)
	if err == nil {
		var n int64
		if n, err = checkpoint.Counter(v); err == nil {
			return n
		}
	}
	r.c.FaultErr(err, key)
	return -1
}

// list reads a list of dicts.
func (r *reader) list(key string, n int) []*pickle.Dict {
	v, _ := r.d.Get(key)
	v, err := tree.Resolve(v)
	if err != nil {
		r.c.FaultErr(err, key)
		return nil
	}
	list, _ := v.(*pickle.List)
	if list == nil && n == 0 {
		return nil // a directory has no item of an empty list of dicts
	}
	if list == nil || len(list.Items) != n { // D3, D4
		r.c.Fault(fault.Corrupt, key, "it is %s, expected a list of %d", tree.Describe(v), n)
		return nil
	}
	out := make([]*pickle.Dict, n)
	for i, item := range list.Items {
		if out[i], err = layout.Dict(item, fmt.Sprintf("%s.%d", key, i)); err != nil {
			r.c.FaultErr(err, "")
			return nil
		}
	}
	return out
}

func (r *reader) groups(n int) {
	for i, d := range r.list(keyHypers, n) {
		fields := &pickle.Dict{}
		item := fmt.Sprintf("%s.%d", keyHypers, i)
		for _, p := range d.Pairs {
			v, err := tree.Resolve(p.Value)
			if err != nil {
				r.c.FaultErr(err, item)
			}
			fields.Set(p.Key, v)
		}
		for _, key := range hypers {
			if _, ok := fields.Get(key); !ok && key != "lr" {
				r.c.Fault(fault.Corrupt, item, "the group has no %s", key) // D5
			}
		}
		r.c.Groups = append(r.c.Groups, r.c.ReadGroup(fields, nil, item))
	}
}

func (r *reader) parameters(n int) bool {
	identities := r.list(keyIdentities, n)
	if len(identities) != n {
		return false
	}
	names := make(map[string]bool, n)
	for i, d := range identities {
		item := fmt.Sprintf("%s.%d", keyIdentities, i)
		get := func(key string) pickle.Value {
			v, _ := d.Get(key)
			v, err := tree.Resolve(v)
			if err != nil {
				r.c.FaultErr(err, item+"."+key)
			}
			return v
		}
		p := checkpoint.Param{Placement: checkpoint.Placement{Type: "Shard", Module: checkpoint.PlacementModule}}
		var ok, ok2, ok3 bool
		var group int64
		p.Name, ok = get("name").(string)
		group, ok2 = get("group").(int64)
		p.Shape, ok3 = pickle.Ints(get("shape"))
		if _, sane := tensor.Volume(p.Shape); !ok || !ok2 || !ok3 || !sane || group < 0 || group >= int64(len(r.c.Groups)) { // D4
			r.c.Fault(fault.Corrupt, item, "an identity takes a name, a shape, and a group below %d", len(r.c.Groups))
			return false
		}
		if len(d.Pairs) != 3 { // D4: compared with what the optimizer would write
			r.c.Fault(fault.Corrupt, item, "an identity has %d keys, and a loader takes three", len(d.Pairs))
		}
		if names[p.Name] { // D6
			r.c.Fault(fault.Corrupt, item, "another parameter has the name %q too", p.Name)
		}
		names[p.Name] = true
		p.Group = int(group)
		g := &r.c.Groups[p.Group]
		p.Index = len(g.Params)
		g.Params = append(g.Params, i)
		r.c.Params = append(r.c.Params, p)
	}
	return true
}

// slot reads the tensors and the counters of one slot. The counters may need
// repair, which needs all slots.
func (r *reader) slot(i int) checkpoint.Slot {
	s := checkpoint.Slot{}
	for _, f := range []struct {
		field string
		to    **tensor.Tensor
	}{{"momentum", &s.Momentum}, {"second_moment", &s.SecondMoment}} {
		key := slotKey(i, f.field)
		v, _ := r.d.Get(key)
		v, err := tree.Resolve(v)
		t, ok := v.(*tensor.Tensor)
		switch {
		case err != nil:
			r.c.FaultErr(err, key)
		case !ok || t.DType != tensor.Float32 || !slices.Equal(t.Shape, r.c.Params[i].Shape):
			r.c.Fault(fault.Corrupt, key, "it is %s, expected a float32 tensor of %v (%s)", tree.Describe(v), r.c.Params[i].Shape, r.c.Params[i].Name) // D8
		default:
			*f.to = t
		}
	}
	r.counters = append(r.counters, [3]int64{
		r.integer(slotKey(i, "initialized")), r.integer(slotKey(i, "step")), r.integer(slotKey(i, "vmean_step")),
	})
	return s
}

// repair settles the counters. Where a rank's shard was empty, GefenDCPState
// writes some of a slot's three scalars from that rank, which has no state: a
// mixture that no Gefen-X loads again. A slot is initialized if it says so, if
// either counter is, or if its tensors are not all zero; a zero counter of such
// a slot is unknown, and becomes the other one, else the most common step of the
// other slots, else the global step.
func (r *reader) repair() {
	common := r.commonStep()
	for i, c := range r.counters {
		s, item := &r.c.Slots[i], fmt.Sprintf("slot_%08d (%s)", i, r.c.Params[i].Name)
		initialized, step, vmean := c[0] > 0, max(c[1], 0), max(c[2], 0)
		if !initialized && step == 0 && vmean == 0 {
			if r.c.GlobalStep == 0 { // nothing can have been stepped
				continue
			}
			full, err := anyNonZero(s.Momentum, s.SecondMoment)
			if err != nil {
				r.c.FaultErr(err, item)
			}
			if !full {
				continue
			}
		}
		s.Initialized, s.Step, s.VmeanStep = true, firstPositive(step, vmean, common), firstPositive(vmean, step, common)
		if !initialized || s.Step != step || s.VmeanStep != vmean {
			r.c.Warnings = append(r.c.Warnings, fault.New(fault.Corrupt,
				"counters initialized=%d, step=%d, vmean_step=%d contradict each other, as GefenDCPState writes them when a shard is empty: real Gefen-X will refuse this; read as step=%d, vmean_step=%d",
				c[0], c[1], c[2], s.Step, s.VmeanStep).In(item).File(r.c.Path).WithHint("convert the directory with --to dense to repair it"))
		}
	}
}

func firstPositive(n ...int64) int64 {
	for _, v := range n {
		if v > 0 {
			return v
		}
	}
	return 0
}

// commonStep is the most common positive step of all slots, else the global step.
func (r *reader) commonStep() int64 {
	votes := map[int64]int{}
	best := r.c.GlobalStep
	for _, c := range r.counters {
		if c[1] > 0 {
			votes[c[1]]++
			if votes[c[1]] > votes[best] || votes[c[1]] == votes[best] && c[1] > best {
				best = c[1]
			}
		}
	}
	return best
}

// anyNonZero reads tensors until an element is not zero.
func anyNonZero(tensors ...*tensor.Tensor) (bool, error) {
	buffer := make([]byte, 1<<16)
	for _, t := range tensors {
		if t == nil {
			continue
		}
		for from, n := int64(0), t.Len(); from < n; {
			b := buffer[:min(int64(len(buffer)), 4*(n-from))]
			if err := t.ReadAt(b, from); err != nil {
				return false, err
			}
			// A zero of either sign: all bits but the highest.
			for i := 0; i < len(b); i += 4 {
				if b[i] != 0 || b[i+1] != 0 || b[i+2] != 0 || b[i+3]&0x7f != 0 {
					return true, nil
				}
			}
			from += int64(len(b) / 4)
		}
	}
	return false, nil
}
