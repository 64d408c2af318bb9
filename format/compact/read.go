// Package compact reads and writes the rank-local form: N payloads, one per
// rank, each a torch.save archive in a uint8 tensor with that rank's codebook
// and the state of its shards.
//
// A file of this form says everything several times: the marker in every group's
// metadata, and each payload of itself. Reading takes what can be read and leaves
// it to rules.go to say where these disagree, or where a loader would refuse.
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
			if v, ok := g.Metadata.Get(KeyMarker); ok && v != nil {
				return true
			}
		}
	}
	return slices.ContainsFunc(s.Entries, func(e layout.Entry) bool {
		return e.Fields != nil && (has(e.Fields, layout.MemberKey) || len(PayloadRanks(e.Fields)) > 0)
	})
}

func has(d *pickle.Dict, key string) bool { _, ok := d.Get(key); return ok }

// PayloadRanks are the ranks whose payloads an entry carries, sorted.
func PayloadRanks(d *pickle.Dict) []int {
	var ranks []int
	for _, p := range d.Pairs {
		key, _ := p.Key.(string)
		if n, ok := strings.CutPrefix(key, layout.PayloadPrefix); ok {
			if r, err := strconv.Atoi(n); err == nil && r >= 0 && r < mostRanks {
				ranks = append(ranks, r)
			}
		}
	}
	slices.Sort(ranks)
	return ranks
}

// mostRanks is more ranks than there are anywhere.
const mostRanks = 1 << 20

// Read fills c from a rank-local state. What a real loader would refuse is
// gathered in c.Faults; c holds what could be read.
func Read(c *checkpoint.Checkpoint, s *layout.State) {
	c.Form, c.Optimizer, c.Layout = checkpoint.Compact, checkpoint.Gefen, s.Layout
	o := &outer{c: c, s: s}
	o.findMarkers()
	o.findCarriers()
	o.topology()
	for _, rule := range outerRules {
		rule.check(o)
	}
	for _, rank := range o.ranks {
		v, _ := s.Entries[o.carriers[0]].Fields.Get(layout.PayloadKey(rank))
		p := &payload{outer: o, rank: rank, item: fmt.Sprintf("payload of rank %d", rank)}
		if err := p.read(v); err != nil {
			c.FaultErr(err, p.item)
		}
	}
	o.groups()
	for _, rule := range finalRules {
		rule.check(o)
	}
}

// outer is what a loader sees of the checkpoint before it opens a payload, as far
// as it could be read.
type outer struct {
	c *checkpoint.Checkpoint
	s *layout.State
	// markers of the groups; nil for a group without one.
	markers []*pickle.Dict
	marker  *pickle.Dict // the first of them, its values read; nil if there is none
	// carriers are the entries with payloads; a sound checkpoint has one.
	carriers []int
	ranks    []int // whose payloads are there and belong to the world, sorted
	strays   []int // whose payloads are there and do not
	// byCoordinate says that rows follow the coordinates in the mesh, and not the
	// ranks; see places.
	byCoordinate bool
	// signature is that of the first payload that was read, which the parameters
	// are made from; nil before.
	signature []*pickle.Dict
}

// findMarkers looks up the marker of every group, and reads the first one whole.
func (o *outer) findMarkers() {
	for g, group := range o.s.Groups {
		var m *pickle.Dict
		if group.Metadata != nil {
			if v, _ := group.Metadata.Get(KeyMarker); v != nil {
				var err error
				if m, err = layout.Dict(v, ""); err != nil {
					o.c.FaultErr(err, o.groupItem(g)+"."+layout.KeyMetadata+"."+KeyMarker)
				}
			}
		}
		o.markers = append(o.markers, m)
		if o.marker == nil && m != nil {
			o.marker = o.force(m)
		}
	}
}

func (o *outer) groupItem(g int) string { return fmt.Sprintf("%s.%d", layout.KeyGroups, g) }

// force reads the lazy values of a dict; those that cannot be read are left out.
func (o *outer) force(d *pickle.Dict) *pickle.Dict {
	out := &pickle.Dict{}
	for _, p := range d.Pairs {
		v, err := tree.Force(p.Value)
		if err != nil {
			o.c.FaultErr(err, markerItem+"."+tree.Name(p.Key))
			continue
		}
		out.Pairs = append(out.Pairs, pickle.Pair{Key: p.Key, Value: v})
	}
	return out
}

const markerItem = "rank-local marker"

// get is a value of the marker, nil where there is none.
func (o *outer) get(key string) pickle.Value {
	if o.marker == nil {
		return nil
	}
	v, _ := o.marker.Get(key)
	return v
}

func (o *outer) findCarriers() {
	for i, e := range o.s.Entries {
		if e.Fields != nil && len(PayloadRanks(e.Fields)) > 0 {
			o.carriers = append(o.carriers, i)
		}
	}
}

// topology settles the world, from the marker or, where it has none, from the
// payloads; and which payloads are of it.
func (o *outer) topology() {
	c := o.c
	if n, ok := o.get(keyWorldSize).(int64); ok && n >= 1 && n < mostRanks {
		c.World = int(n)
	}
	var found []int
	if len(o.carriers) > 0 {
		found = PayloadRanks(o.s.Entries[o.carriers[0]].Fields)
	}
	if c.World == 0 && len(found) > 0 {
		c.World = found[len(found)-1] + 1
	}
	in, _ := slices.BinarySearch(found, c.World)
	o.ranks, o.strays = found[:in], found[in:]
	if n, ok := o.get(keyGlobalStep).(int64); ok && n >= 0 {
		c.GlobalStep = n
	}
	if b, ok := o.get(keyDeterministic).(bool); ok {
		c.Deterministic = &b
	}
	if d, ok := pickle.AsDict(o.get(keyMesh)); ok {
		c.Mesh = readMesh(d)
	}
	if f, ok := o.get(keyFormat).(string); ok {
		c.SeeVersion("rank-local payload", f)
	}
	o.places()
}

// readMesh takes of a mesh what has the right type.
func readMesh(d *pickle.Dict) *checkpoint.Mesh {
	m := &checkpoint.Mesh{}
	m.DeviceType, _ = first(d, "device_type").(string)
	m.Shape, _ = pickle.Ints(first(d, "shape"))
	m.DimNames, _ = pickle.Strings(first(d, "dim_names"))
	m.Ranks, _ = pickle.Ints(first(d, "ranks"))
	return m
}

func first(d *pickle.Dict, key string) pickle.Value { v, _ := d.Get(key); return v }

// coordinate is the position of a rank in the mesh; the rank itself where the
// mesh does not say.
func (o *outer) coordinate(rank int) int {
	if o.c.Mesh != nil {
		if i := slices.Index(o.c.Mesh.Ranks, int64(rank)); i >= 0 && i < o.c.World {
			return i
		}
	}
	return rank
}

// place is the position of a rank along the sharded dimension.
func (o *outer) place(rank int) int {
	if o.byCoordinate {
		return o.coordinate(rank)
	}
	return rank
}

// places settles which rows the ranks of a permuted mesh hold. PyTorch 2.6 and
// 2.15 give rank r the r-th part, in fully_shard and in distribute_tensor alike:
// the process group counts as the world does. But distribute_tensor takes the
// number of rows from the coordinate, so that it cuts uneven rows wrongly. Where
// the local shapes fit the coordinates alone, these are believed.
func (o *outer) places() {
	m := o.c.Mesh
	if m == nil || len(m.Shape) != 1 || slices.IsSorted(m.Ranks) {
		return
	}
	fitsRank, fitsCoordinate := true, true
	signatures, _ := pickle.AsDict(o.get(keySignatures))
	for rank := range o.c.World {
		if signatures == nil {
			break
		}
		entries, err := dicts(signatures, strconv.Itoa(rank))
		if err != nil {
			continue
		}
		for _, sig := range entries {
			fitsRank = fitsRank && fits(sig, o.c.World, rank)
			fitsCoordinate = fitsCoordinate && fits(sig, o.c.World, o.coordinate(rank))
		}
	}
	o.byCoordinate = fitsCoordinate && !fitsRank
	order := "ranks, as PyTorch lays them out"
	if o.byCoordinate {
		order = "coordinates, which alone fit the local shapes: PyTorch cuts parameters wrongly where rows do not divide"
	}
	o.c.Warn(markerItem+"."+keyMesh, "its ranks are permuted, %v; rows are taken in the order of the %s", m.Ranks[:min(len(m.Ranks), 16)], order)
}

// fits says whether a signature's local shape is that of a place. It is so
// vacuously for what is not sharded.
func fits(sig *pickle.Dict, world, place int) bool {
	placements, ok := pickle.Sequence(first(sig, "placements"))
	shape, ok2 := pickle.Ints(first(sig, "shape"))
	local, ok3 := pickle.Ints(first(sig, "local_shape"))
	if !ok || !ok2 || !ok3 || len(placements) != 1 {
		return true
	}
	d, _ := pickle.AsDict(placements[0])
	if d == nil || first(d, "type") != "Shard" {
		return true
	}
	dim, ok := first(d, "dim").(int64)
	if !ok || dim < 0 || dim >= int64(len(shape)) || len(local) != len(shape) {
		return true
	}
	_, n := checkpoint.ChunkRows(shape[dim], world, place)
	return local[dim] == n
}

// groups reads the parameter groups.
func (o *outer) groups() {
	for g, group := range o.s.Groups {
		o.c.Groups = append(o.c.Groups, o.c.ReadGroup(group.Fields, group.Entries, o.groupItem(g)))
		invented, _ := pickle.Sequence(first(group.Fields, layout.KeyInvented))
		for i, p := range group.Entries {
			if p < len(o.c.Params) {
				o.c.Params[p].Synthesized = i < len(invented) && invented[i] == true
			}
		}
	}
}

// asPayload is what holds a payload: a uint8 tensor of one dimension (rule O24).
func asPayload(v pickle.Value) (*tensor.Tensor, error) {
	v, err := tree.Resolve(v)
	if err != nil {
		return nil, err
	}
	t, ok := v.(*tensor.Tensor)
	if !ok || t.DType != tensor.Uint8 || len(t.Shape) != 1 {
		return nil, fault.New(fault.Corrupt, "it is %s, expected a uint8 tensor of one dimension", tree.Describe(v))
	}
	return t, nil
}
