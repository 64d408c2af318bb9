// Package compact reads and writes the rank-local form: N payloads, one per
// rank, each a torch.save archive in a uint8 tensor with that rank's codebook
// and the state of its shards.
package compact

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// payloadFormat is the only format of payloads that Gefen-X 0.5 writes.
const payloadFormat = "rank_local_dtensor_v2"

// KeyMarker is the key in a group's metadata that says that its state is
// rank-local.
const KeyMarker = "rank_local_sharded_state"

// Is says whether a state is rank-local: it has payloads or markers.
func Is(s *layout.State) bool {
	for _, g := range s.Groups {
		if g.Metadata != nil {
			if _, ok := g.Metadata.Get(KeyMarker); ok {
				return true
			}
		}
	}
	for _, e := range s.Entries {
		if e.Fields != nil && (len(payloadRanks(e.Fields)) > 0 || has(e.Fields, layout.MemberKey)) {
			return true
		}
	}
	return false
}

func has(d *pickle.Dict, key string) bool { _, ok := d.Get(key); return ok }

// payloadRanks are the ranks whose payloads the entry carries, sorted.
func payloadRanks(d *pickle.Dict) []int {
	var ranks []int
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		if n, ok := strings.CutPrefix(key, layout.PayloadPrefix); ok {
			if r, err := strconv.Atoi(n); err == nil && r >= 0 {
				ranks = append(ranks, r)
			}
		}
	}
	slices.Sort(ranks)
	return ranks
}

// Read fills c from a rank-local state. What a real loader would refuse is
// gathered in c.Faults; c holds what could be read.
func Read(c *checkpoint.Checkpoint, s *layout.State) {
	c.Form, c.Optimizer, c.Layout = checkpoint.Compact, checkpoint.Gefen, s.Layout
	r := &reader{c: c, s: s}
	marker := r.markers()
	carrier := r.carrier()
	if marker == nil && carrier == nil {
		return
	}
	if marker != nil {
		r.marker(marker)
	}
	for _, rank := range r.ranks(carrier) {
		v, _ := carrier.Get(layout.PayloadKey(rank))
		item := r.payloadItem(rank)
		t, ok := v.(*tensor.Tensor)
		if !ok || t.DType != tensor.Uint8 || len(t.Shape) != 1 {
			c.Fault(fault.Corrupt, item, "%s, expected a uint8 tensor of one dimension", tree.Describe(v)) // O24
			continue
		}
		if err := r.payload(rank, t, item); err != nil {
			c.FaultErr(err, item)
		}
	}
	r.finish()
}

type reader struct {
	c        *checkpoint.Checkpoint
	s        *layout.State
	carrying string // the carrier's key
	// signatures as the marker gives them, by rank; nil without a marker.
	signatures *pickle.Dict
	manifest   pickle.Value
	step       pickle.Value
	read       bool // some payload was
}

func (r *reader) payloadItem(rank int) string { return fmt.Sprintf("payload of rank %d", rank) }

// markers checks that every group has a marker and all are equal, and returns
// one of them (rules O2, O4, O5).
func (r *reader) markers() *pickle.Dict {
	var first *pickle.Dict
	missing := 0
	for g, group := range r.s.Groups {
		var m *pickle.Dict
		if group.Metadata != nil {
			if v, ok := group.Metadata.Get(KeyMarker); ok {
				var err error
				if m, err = layout.Dict(v, fmt.Sprintf("%s.%d.%s.%s", layout.KeyGroups, g, layout.KeyMetadata, KeyMarker)); err != nil {
					r.c.FaultErr(err, "")
				}
			}
		}
		switch {
		case m == nil:
			missing++
		case first == nil:
			first = m
		case m != first:
			if same, err := tree.Same(m, first); err != nil {
				r.c.FaultErr(err, fmt.Sprintf("%s.%d", layout.KeyGroups, g))
			} else if !same {
				r.c.Fault(fault.Corrupt, fmt.Sprintf("%s.%d", layout.KeyGroups, g), "its rank-local marker differs from that of another group")
			}
		}
		if group.Metadata != nil {
			r.version(group.Metadata, g)
		}
	}
	if missing > 0 {
		r.c.Fault(fault.Corrupt, layout.KeyGroups, "%d of %d groups have no rank-local topology metadata", missing, len(r.s.Groups))
	}
	return first
}

// version checks format_version, the one key of the metadata that a loader reads
// before the marker overrides the rest.
func (r *reader) version(metadata *pickle.Dict, g int) {
	v, _ := metadata.Get("format_version")
	v, err := tree.Resolve(v)
	if n, ok := v.(int64); err != nil || !ok || n < 1 || n > 3 {
		r.c.Fault(fault.Unsupported, fmt.Sprintf("%s.%d.%s.format_version", layout.KeyGroups, g, layout.KeyMetadata), "%s, expected 1, 2 or 3", tree.Describe(v))
	}
}

// carrier finds the one entry that has the payloads, and checks all entries
// (rules O18 to O23).
func (r *reader) carrier() *pickle.Dict {
	var carrier *pickle.Dict
	for _, e := range r.s.Entries {
		item := layout.KeyState + "." + e.Key
		if e.Fields == nil {
			r.c.Fault(fault.Corrupt, item, "no entry for a parameter that a group names")
			continue
		}
		payloads := len(payloadRanks(e.Fields)) > 0
		for _, p := range e.Fields.Pairs {
			key, _ := p.Key.(string)
			v, err := tree.Resolve(p.Value)
			switch {
			case err != nil:
				r.c.FaultErr(err, item)
			case key == checkpoint.KeyName:
				if n, err := checkpoint.Number(v); err != nil || n != 0 {
					r.c.Fault(fault.Corrupt, item+".name", "%s, expected the placeholder 0", tree.Describe(v))
				}
			case key == layout.MemberKey:
				if v != true {
					r.c.Fault(fault.Corrupt, item, "the member mark is %s, expected True", tree.Describe(v))
				}
				if payloads {
					r.c.Fault(fault.Corrupt, item, "an entry with payloads is marked as a member too")
				}
			case !strings.HasPrefix(key, layout.PayloadPrefix):
				r.c.Fault(fault.Corrupt, item, "unexpected key %v in a rank-local entry", p.Key)
			}
		}
		switch {
		case payloads && carrier != nil:
			r.c.Fault(fault.Corrupt, item, "a second entry carries payloads; the first is %s", r.carrying)
		case payloads:
			carrier, r.carrying = e.Fields, e.Key
		case !has(e.Fields, layout.MemberKey):
			r.c.Fault(fault.Corrupt, item, "the entry is neither the carrier of the payloads nor a member")
		}
	}
	if carrier == nil {
		r.c.Fault(fault.Incomplete, layout.KeyState, "no entry carries the ranks' payloads")
	}
	return carrier
}

// marker reads the topology of the marker.
func (r *reader) marker(m *pickle.Dict) {
	item := "rank-local marker"
	if v := r.get(m, "format", item); v != payloadFormat {
		r.c.Fault(fault.Unsupported, item, "format %s, expected %q", tree.Describe(v), payloadFormat) // O6
	}
	if n, ok := r.get(m, "world_size", item).(int64); ok && n >= 1 && n < 1<<20 {
		r.c.World = int(n)
	} else {
		r.c.Fault(fault.Corrupt, item, "no world_size of at least 1")
	}
	if d, err := layout.Dict(r.get(m, "mesh", item), item+".mesh"); err != nil {
		r.c.FaultErr(err, "")
	} else {
		r.c.Mesh = readMesh(r.c, d, item+".mesh")
	}
	r.step = r.get(m, "global_step", item)
	if n, ok := r.step.(int64); ok && n >= 0 {
		r.c.GlobalStep = n
	} else {
		r.c.Fault(fault.Corrupt, item+".global_step", "%s, expected an integer of at least 0", tree.Describe(r.step)) // O15
	}
	if b, ok := r.get(m, "deterministic", item).(bool); ok {
		r.c.Deterministic = &b
	} else {
		r.c.Fault(fault.Corrupt, item+".deterministic", "expected True or False") // O16
	}
	if d, err := layout.Dict(r.get(m, "signatures", item), item+".signatures"); err != nil {
		r.c.FaultErr(err, "")
	} else {
		r.signatures = d
		for rank := range r.c.World {
			if !has(d, strconv.Itoa(rank)) {
				r.c.Fault(fault.Corrupt, item+".signatures", "no signature of rank %d", rank) // O12
			}
		}
		if len(d.Pairs) > r.c.World {
			r.c.Fault(fault.Corrupt, item+".signatures", "%d signatures for %d ranks", len(d.Pairs), r.c.World)
		}
	}
	r.manifest = r.get(m, "parameter_manifest", item)
	if ranks, ok := pickle.Ints(r.get(m, "world_ranks", item)); !ok || !isRange(ranks, r.c.World) {
		r.c.Fault(fault.Corrupt, item+".world_ranks", "expected 0 to %d in order", r.c.World-1) // O10
	}
}

func isRange(n []int64, length int) bool {
	if len(n) != length {
		return false
	}
	for i, v := range n {
		if v != int64(i) {
			return false
		}
	}
	return true
}

// get resolves a key; an unreadable value is a fault and nil.
func (r *reader) get(d *pickle.Dict, key, item string) pickle.Value {
	v, _ := d.Get(key)
	v, err := tree.Resolve(v)
	if err != nil {
		r.c.FaultErr(err, item+"."+key)
		return nil
	}
	return v
}

func readMesh(c *checkpoint.Checkpoint, d *pickle.Dict, item string) *checkpoint.Mesh {
	m := &checkpoint.Mesh{}
	get := func(key string) pickle.Value {
		v, _ := d.Get(key)
		v, err := tree.Resolve(v)
		if err != nil {
			c.FaultErr(err, item+"."+key)
		}
		return v
	}
	var ok, ok2, ok3, ok4 bool
	m.DeviceType, ok = get("device_type").(string)
	m.Shape, ok2 = pickle.Ints(get("shape"))
	m.DimNames, ok3 = pickle.Strings(get("dim_names"))
	m.Ranks, ok4 = pickle.Ints(get("ranks"))
	if !ok || !ok2 || !ok3 || !ok4 {
		c.Fault(fault.Corrupt, item, "a mesh needs device_type, shape, dim_names and ranks")
		return m
	}
	if len(m.Shape) != 1 {
		c.Faults = append(c.Faults, fault.New(fault.Unsupported, "the mesh has %d dimensions, %v: hybrid sharding (HSDP) is not read", len(m.Shape), m.Shape).In(item).File(c.Path).
			WithHint("Gefen refuses such meshes too; save from a run whose mesh has one dimension"))
		return m
	}
	seen := make([]bool, len(m.Ranks))
	for _, rank := range m.Ranks {
		if rank < 0 || rank >= int64(len(seen)) || seen[rank] {
			c.Fault(fault.Corrupt, item+".ranks", "%v is no order of the ranks 0 to %d", m.Ranks, len(seen)-1)
			return m
		}
		seen[rank] = true
	}
	if int64(len(m.Ranks)) != m.Shape[0] {
		c.Fault(fault.Corrupt, item, "%d ranks in a mesh of shape %v", len(m.Ranks), m.Shape)
	}
	return m
}

// ranks compares the payloads with the world and returns those that are there
// and belong to it (O22).
func (r *reader) ranks(carrier *pickle.Dict) []int {
	if carrier == nil {
		return nil
	}
	found := payloadRanks(carrier)
	if r.c.World == 0 && len(found) > 0 {
		r.c.World = len(found)
	}
	var missing, extra []int
	for rank := range r.c.World {
		if !slices.Contains(found, rank) {
			missing = append(missing, rank)
		}
	}
	for _, rank := range found {
		if rank >= r.c.World {
			extra = append(extra, rank)
		}
	}
	if len(missing) > 0 {
		r.c.Faults = append(r.c.Faults, fault.New(fault.Incomplete, "the payloads of ranks %v are missing; the checkpoint has %d ranks", missing, r.c.World).
			In(layout.KeyState+"."+r.carrying).File(r.c.Path).WithHint("gather the state of all ranks, or copy the missing files from the nodes that ran them"))
	}
	if len(extra) > 0 {
		r.c.Fault(fault.Corrupt, layout.KeyState+"."+r.carrying, "payloads of ranks %v in a world of %d", extra, r.c.World)
	}
	return slices.DeleteFunc(found, func(rank int) bool { return rank >= r.c.World })
}

// payload opens one payload in place and reads it.
func (r *reader) payload(rank int, t *tensor.Tensor, item string) error {
	a, err := torchfile.Open(t.AsStorage(), torchfile.Options{})
	if err != nil {
		return err
	}
	d, err := layout.Dict(a.Root(), "")
	if err != nil {
		return err
	}
	for _, key := range payloadKeys {
		if !has(d, key) {
			return fault.New(fault.Corrupt, "the payload has no %q", key) // P1
		}
	}
	if len(d.Pairs) != len(payloadKeys) {
		r.c.Fault(fault.Corrupt, item, "the payload has %d keys, expected %d", len(d.Pairs), len(payloadKeys))
	}
	r.header(rank, d, item)
	signature, err := entries(d, "signature")
	if err != nil {
		return err
	}
	states, err := entries(d, "states")
	if err != nil {
		return err
	}
	if len(states) != len(signature) {
		return fault.New(fault.Corrupt, "%d states for %d parameters", len(states), len(signature)) // S1
	}
	if _, isList := first(d, "states").(*pickle.List); !isList {
		r.c.Fault(fault.Corrupt, item+".states", "a tuple, expected a list")
	}
	if !r.read {
		if err := r.parameters(signature, item); err != nil {
			return err
		}
		r.read = true
	}
	if len(signature) != len(r.c.Params) {
		return fault.New(fault.Corrupt, "%d parameters, other ranks have %d", len(signature), len(r.c.Params))
	}
	out := checkpoint.Rank{GlobalRank: rank, Coordinate: rank, Payload: t, Verify: a.Verify, Shards: make([]checkpoint.Shard, len(states))}
	if book := first(d, "codebook"); book != nil {
		var ok bool
		if out.Codebook, ok = book.(*tensor.Tensor); !ok {
			r.c.Fault(fault.Corrupt, item+".codebook", "%s, expected a tensor or None", tree.Describe(book))
		}
	}
	for i := range states {
		r.shard(&out, i, signature[i], states[i], fmt.Sprintf("%s.%s", item, r.c.Params[i].Name))
	}
	r.c.CheckCodebook(&out, item+".codebook")
	r.c.Ranks = append(r.c.Ranks, out)
	return nil
}

// payloadKeys are the keys of a payload, in the order in which they are written.
var payloadKeys = []string{"format", "global_rank", "group_rank", "world_size", "world_ranks", "mesh", "signature",
	"parameter_manifest", "global_step", "deterministic", "states", "codebook"}

func first(d *pickle.Dict, key string) pickle.Value { v, _ := d.Get(key); return v }

// entries reads a list of dicts.
func entries(d *pickle.Dict, key string) ([]*pickle.Dict, error) {
	items, ok := pickle.Sequence(first(d, key))
	if !ok {
		return nil, fault.New(fault.Corrupt, "%s, expected a list", tree.Describe(first(d, key))).In(key)
	}
	out := make([]*pickle.Dict, len(items))
	for i, v := range items {
		var err error
		if out[i], err = layout.Dict(v, fmt.Sprintf("%s.%d", key, i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// header compares a payload's own description with its rank and the marker
// (rules P2 to P9).
func (r *reader) header(rank int, d *pickle.Dict, item string) {
	expect := func(key string, want pickle.Value) {
		got := first(d, key)
		if same, err := tree.Same(got, want); err != nil || !same {
			r.c.Fault(fault.Corrupt, item+"."+key, "%s, expected %s", text(got), text(want))
		}
	}
	if v := first(d, "format"); v != payloadFormat {
		r.c.Fault(fault.Unsupported, item+".format", "%s, expected %q", tree.Describe(v), payloadFormat)
	}
	expect("global_rank", int64(rank))
	expect("world_size", int64(r.c.World))
	if r.signatures == nil { // no marker: the payload says what a marker would
		if n, ok := first(d, "global_step").(int64); ok {
			r.c.GlobalStep = n
		}
		if m, err := layout.Dict(first(d, "mesh"), ""); err == nil && r.c.Mesh == nil {
			r.c.Mesh = readMesh(r.c, m, item+".mesh")
		}
		return
	}
	expect("global_step", r.step)
	if r.c.Deterministic != nil {
		expect("deterministic", *r.c.Deterministic)
	}
	expect("parameter_manifest", r.manifest)
	expect("signature", r.get(r.signatures, strconv.Itoa(rank), "rank-local marker.signatures"))
}

// text is a small value in full, a large one in a few words.
func text(v pickle.Value) string {
	if items, ok := pickle.Sequence(v); ok && len(items) > 8 {
		return tree.Describe(v)
	}
	if _, ok := pickle.AsDict(v); ok {
		return tree.Describe(v)
	}
	return fmt.Sprint(tree.Plain(v))
}
