package compact

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// The rules of Gefen's loader for a rank-local checkpoint, by the numbers of
// docs/rules.md; those of states are in the package checkpoint. A loader stops at
// the first that is broken; here all are gathered. Rules that compare the file
// with the loading optimizer (O3, O7, O8, P11) compare the file with itself here,
// or nothing.

// outerRules are about what stands around the payloads. O17 is checked by the
// package layout, and O24 where payloads are read.
var outerRules = []struct {
	number string
	check  func(*outer)
}{
	{"O2", (*outer).someMarker},
	{"O4", (*outer).everyMarker},
	{"O5", (*outer).equalMarkers},
	{"O6", (*outer).knownFormat},
	{"O9", (*outer).worldSize},
	{"O10", (*outer).worldRanks},
	{"O11", (*outer).soundMesh},
	{"O12", (*outer).everySignature},
	{"O15", (*outer).globalStep},
	{"O16", (*outer).deterministic},
	{"O18", (*outer).everyEntry},
	{"O19", (*outer).entryKeys},
	{"O20", (*outer).entryNames},
	{"O21", (*outer).carrierOrMember},
	{"O22", (*outer).oneCarrier},
	{"O22", (*outer).everyPayload},
	{"O23", (*outer).memberMarks},
	{"P10", (*outer).metadataVersion},
}

// payloadRules compare a payload's own description with its rank and the marker.
var payloadRules = []struct {
	number, key string
	kind        fault.Kind
	want        func(*payload, string) expected
}{
	{"P2", keyFormat, fault.Unsupported, func(*payload, string) expected { return exactly(payloadFormat) }},
	{"P3", keyGlobalRank, fault.Corrupt, (*payload).ownRank},
	{"P4", keyGroupRank, fault.Corrupt, (*payload).ownRank}, // also where the mesh is permuted
	{"P5", keyWorldSize, fault.Corrupt, func(p *payload, _ string) expected { return exactly(int64(p.c.World)) }},
	{"P5", keyWorldRanks, fault.Corrupt, (*payload).likeMarker},
	{"P5", keyMesh, fault.Corrupt, (*payload).likeMarker},
	{"P6", keySignature, fault.Corrupt, (*payload).likeSignature},
	{"P7", keyManifest, fault.Corrupt, (*payload).likeMarker},
	{"P8", keyGlobalStep, fault.Corrupt, (*payload).likeMarker},
	{"P9", keyDeterministic, fault.Corrupt, (*payload).likeMarker},
}

// finalRules need what was read of all payloads. Those with a W are nothing to a
// loader.
var finalRules = []struct {
	number string
	check  func(*outer)
}{
	{"O14", (*outer).manifest},
	{"W2", (*outer).sameSteps},
	{"W3", (*outer).sameNames},
}

func (o *outer) bad(item, format string, args ...any) {
	o.c.Fault(fault.Corrupt, item, format, args...)
}

// badMarker notes a fault with a key of the marker.
func (o *outer) badMarker(key, format string, args ...any) {
	o.bad(markerItem+"."+key, format, args...)
}

func (o *outer) someMarker() {
	if o.marker == nil {
		o.bad(layout.KeyGroups, "the state is rank-local, and no group has the metadata that says how (%s)", KeyMarker)
	}
}

func (o *outer) everyMarker() {
	missing := 0
	for _, m := range o.markers {
		if m == nil {
			missing++
		}
	}
	if missing > 0 && o.marker != nil {
		o.bad(layout.KeyGroups, "%d of %d groups have no rank-local marker", missing, len(o.markers))
	}
}

func (o *outer) equalMarkers() {
	var reference *pickle.Dict
	for g, m := range o.markers {
		switch {
		case m == nil:
		case reference == nil:
			reference = m
		case m != reference: // a file writes one object for all groups, a directory one for each
			if m = o.force(m); !pickle.Equal(m, o.marker) {
				o.bad(o.groupItem(g), "its rank-local marker is not that of the other groups")
			}
		}
	}
}

func (o *outer) knownFormat() {
	if v := o.get(keyFormat); o.marker != nil && v != payloadFormat {
		o.c.Fault(fault.Unsupported, markerItem+"."+keyFormat, "it is %s, expected %q", tree.Describe(v), payloadFormat)
	}
}

func (o *outer) worldSize() {
	if n, ok := o.get(keyWorldSize).(int64); o.marker != nil && (!ok || n < 1 || n >= mostRanks) {
		o.badMarker(keyWorldSize, "it is %s, expected the number of ranks", tree.Describe(o.get(keyWorldSize)))
	}
}

func (o *outer) worldRanks() {
	if o.marker != nil && !isRange(o.get(keyWorldRanks), o.c.World) {
		o.badMarker(keyWorldRanks, "it is %s, expected 0 to %d in order", text(o.get(keyWorldRanks)), o.c.World-1)
	}
}

// isRange says whether a value is the list 0, 1, ..., n-1.
func isRange(v pickle.Value, n int) bool {
	ints, ok := pickle.Ints(v)
	if !ok || len(ints) != n {
		return false
	}
	for i, v := range ints {
		if v != int64(i) {
			return false
		}
	}
	return true
}

// soundMesh: one dimension over the whole world, in any order.
func (o *outer) soundMesh() {
	m := o.c.Mesh
	switch {
	case o.marker == nil:
	case m == nil:
		o.badMarker(keyMesh, "it is %s, expected a dict", tree.Describe(o.get(keyMesh)))
	case m.DeviceType == "" || m.Shape == nil || m.DimNames == nil || m.Ranks == nil:
		o.badMarker(keyMesh, "a mesh takes device_type, shape, dim_names and ranks, each of its type")
	case len(m.Shape) != 1:
		o.c.FaultErr(fault.New(fault.Unsupported, "the mesh has %d dimensions, %v: hybrid sharding (HSDP) is not read", len(m.Shape), m.Shape).WithHint(hsdp), markerItem+"."+keyMesh)
	case m.Shape[0] != int64(o.c.World) || len(m.Ranks) != o.c.World:
		o.badMarker(keyMesh, "it has shape %v and %d ranks, in a world of %d", m.Shape, len(m.Ranks), o.c.World)
	default:
		sorted := slices.Sorted(slices.Values(m.Ranks))
		for i, rank := range sorted {
			if rank != int64(i) {
				o.badMarker(keyMesh, "its ranks are no order of 0 to %d", o.c.World-1)
				return
			}
		}
	}
}

func (o *outer) everySignature() {
	if o.marker == nil {
		return
	}
	d, ok := pickle.AsDict(o.get(keySignatures))
	if !ok {
		o.badMarker(keySignatures, "it is %s, expected a dict by rank", tree.Describe(o.get(keySignatures)))
		return
	}
	for _, rank := range o.ranks {
		if !has(d, strconv.Itoa(rank)) {
			o.badMarker(keySignatures, "there is none of rank %d", rank)
		}
	}
	if len(d.Pairs) != o.c.World {
		o.badMarker(keySignatures, "there are %d, in a world of %d", len(d.Pairs), o.c.World)
	}
}

func (o *outer) globalStep() {
	if n, ok := o.get(keyGlobalStep).(int64); o.marker != nil && (!ok || n < 0) {
		o.badMarker(keyGlobalStep, "it is %s, expected an integer of at least 0", tree.Describe(o.get(keyGlobalStep)))
	}
}

func (o *outer) deterministic() {
	if _, ok := o.get(keyDeterministic).(bool); o.marker != nil && !ok {
		o.badMarker(keyDeterministic, "it is %s, expected True or False", tree.Describe(o.get(keyDeterministic)))
	}
}

// entries calls each for every entry that is there.
func (o *outer) entries(each func(item string, d *pickle.Dict)) {
	for _, e := range o.s.Entries {
		if e.Fields != nil {
			each(layout.KeyState+"."+e.Key, e.Fields)
		}
	}
}

func (o *outer) everyEntry() {
	for _, e := range o.s.Entries {
		if e.Fields == nil {
			o.bad(layout.KeyState+"."+e.Key, "a group names the parameter, and there is no entry for it")
		}
	}
}

func (o *outer) entryKeys() {
	o.entries(func(item string, d *pickle.Dict) {
		for _, p := range d.Pairs {
			key, _ := p.Key.(string)
			if key != checkpoint.KeyName && key != layout.MemberKey && !strings.HasPrefix(key, layout.PayloadPrefix) {
				o.bad(item, "the key %s does not belong in a rank-local entry", tree.Describe(p.Key))
			}
		}
	})
}

// entryNames: the name is a placeholder, compared with == 0 in Python.
func (o *outer) entryNames() {
	o.entries(func(item string, d *pickle.Dict) {
		v, err := tree.Resolve(first(d, checkpoint.KeyName))
		if n, e := checkpoint.Number(v); err == nil && v != false && (e != nil || n != 0) {
			err = fault.New(fault.Corrupt, "it is %s, expected the placeholder 0", tree.Describe(v))
		}
		if err != nil {
			o.c.FaultErr(err, item+"."+checkpoint.KeyName)
		}
	})
}

func (o *outer) carrierOrMember() {
	o.entries(func(item string, d *pickle.Dict) {
		carries, member := len(PayloadRanks(d)) > 0, has(d, layout.MemberKey)
		switch {
		case carries && member:
			o.bad(item, "it carries payloads, and is marked as a member without")
		case !carries && !member:
			o.bad(item, "it neither carries payloads nor is marked as a member")
		}
	})
}

func (o *outer) oneCarrier() {
	switch len(o.carriers) {
	case 0:
		o.c.FaultErr(fault.New(fault.Incomplete, "no entry carries the payloads of the ranks").
			WithHint("gather the state of all ranks before saving it"), layout.KeyState)
	case 1:
	default:
		o.bad(layout.KeyState+"."+o.s.Entries[o.carriers[1]].Key, "it carries payloads, and so does %s", o.s.Entries[o.carriers[0]].Key)
	}
}

func (o *outer) everyPayload() {
	if len(o.carriers) == 0 {
		return
	}
	item := layout.KeyState + "." + o.s.Entries[o.carriers[0]].Key
	if missing := gaps(o.ranks, o.c.World); missing != "" {
		o.c.FaultErr(fault.New(fault.Incomplete, "payloads are missing: of %s; the checkpoint has %d ranks", missing, o.c.World).
			WithHint("gather the state of all ranks, or copy the missing files from the machines that ran them"), item)
	}
	if len(o.strays) > 0 {
		o.bad(item, "there are payloads of ranks %d to %d, in a world of %d", o.strays[0], o.strays[len(o.strays)-1], o.c.World)
	}
}

// gaps are the numbers below world that are not in ranks, in words.
func gaps(ranks []int, world int) string {
	var spans []string
	from := 0
	for _, rank := range append(slices.Clone(ranks), world) {
		switch {
		case rank == from+1:
			spans = append(spans, fmt.Sprintf("rank %d", from))
		case rank > from:
			spans = append(spans, fmt.Sprintf("ranks %d to %d", from, rank-1))
		}
		from = rank + 1
	}
	const most = 8
	if len(spans) > most {
		spans = append(spans[:most], "more")
	}
	return strings.Join(spans, ", ")
}

func (o *outer) memberMarks() {
	o.entries(func(item string, d *pickle.Dict) {
		v, ok := d.Get(layout.MemberKey)
		v, err := tree.Resolve(v)
		if ok && err == nil && v != true {
			err = fault.New(fault.Corrupt, "it is %s, expected True", tree.Describe(v))
		}
		if err != nil {
			o.c.FaultErr(err, item+"."+layout.MemberKey)
		}
	})
}

// metadataVersion: of a group's metadata, a loader reads the version before the
// marker overrides the rest.
func (o *outer) metadataVersion() {
	var reference *pickle.Dict
	for g, group := range o.s.Groups {
		if group.Metadata == nil || group.Metadata == reference {
			continue
		}
		reference = group.Metadata
		layout.CheckVersion(o.c, group.Metadata, o.groupItem(g))
	}
}

// expected is what a rule wants to find; nothing where there is nothing to
// compare with.
type expected struct {
	value pickle.Value
	known bool
}

func exactly(v pickle.Value) expected { return expected{v, true} }

func (p *payload) ownRank(string) expected { return exactly(int64(p.rank)) }

func (p *payload) compare(key string, kind fault.Kind, want expected) {
	if got := first(p.d, key); want.known && !pickle.Equal(got, want.value) {
		p.c.Fault(kind, p.item+"."+key, "%s", difference(got, want.value))
	}
}

// likeMarker wants what the marker says under the same key.
func (p *payload) likeMarker(key string) expected {
	v, ok := p.marker.Get(key)
	return expected{v, ok}
}

// likeSignature wants what the marker says is this rank's signature.
func (p *payload) likeSignature(string) expected {
	d, ok := pickle.AsDict(p.get(keySignatures))
	if !ok {
		return expected{}
	}
	v, ok := d.Get(strconv.Itoa(p.rank))
	return expected{v, ok}
}

// difference says where two values part, and how.
func difference(got, want pickle.Value) string {
	var at []string
	for {
		key, a, b, ok := step(got, want)
		if !ok {
			break
		}
		at, got, want = append(at, key), a, b
	}
	if len(at) == 0 {
		return fmt.Sprintf("it is %s, expected %s", text(got), text(want))
	}
	return fmt.Sprintf("%s is %s, and the marker says %s", strings.Join(at, "."), text(got), text(want))
}

// step goes to the first child in which two containers of a kind differ.
func step(got, want pickle.Value) (key string, a, b pickle.Value, ok bool) {
	x, ok := pickle.AsDict(got)
	y, ok2 := pickle.AsDict(want)
	if ok && ok2 {
		for _, p := range y.Pairs {
			name, isString := p.Key.(string)
			if v, there := x.Get(name); isString && there && !pickle.Equal(v, p.Value) {
				return name, v, p.Value, true
			}
		}
		return "", nil, nil, false
	}
	p, ok := got.(*pickle.List)
	q, ok2 := want.(*pickle.List)
	if ok && ok2 && len(p.Items) == len(q.Items) {
		for i := range p.Items {
			if _, nested := pickle.AsDict(p.Items[i]); nested && !pickle.Equal(p.Items[i], q.Items[i]) {
				return strconv.Itoa(i), p.Items[i], q.Items[i], true
			}
		}
	}
	return "", nil, nil, false
}

// manifestKeys are the keys of a manifest's entries: the part of a signature that
// is the same on all ranks.
var manifestKeys = []string{"identifier", "group", "param", "name", "sharded", "shape", "dtype", "requires_grad", "sharded_mode"}

func (o *outer) manifest() {
	if o.signature == nil {
		return
	}
	want := &pickle.List{}
	for _, sig := range o.signature {
		entry := &pickle.Dict{}
		for _, key := range manifestKeys {
			entry.Set(key, first(sig, key))
		}
		want.Items = append(want.Items, entry)
	}
	if got := o.get(keyManifest); !pickle.Equal(got, want) {
		o.badMarker(keyManifest, "%s", strings.Replace(difference(got, want), "the marker says", "the signatures say", 1))
	}
}

func (o *outer) sameSteps() { o.c.CheckSteps() }

// sameNames: a loader believes param_names over everything else, and the
// parameters of the running optimizer take those names.
func (o *outer) sameNames() {
	for g, group := range o.c.Groups {
		item := o.groupItem(g) + "." + layout.KeyNames
		v, ok := group.Fields.Get(layout.KeyNames)
		if !ok {
			continue
		}
		names, ok := pickle.Strings(v)
		if !ok || len(names) != len(group.Params) {
			o.bad(item, "it is %s, for %d parameters", tree.Describe(v), len(group.Params))
			continue
		}
		for i, p := range group.Params {
			if p < len(o.c.Params) && names[i] != o.c.Params[p].Name {
				o.c.Warn(item, "parameter %d is %q here, and %q in its signature", i, names[i], o.c.Params[p].Name)
			}
		}
	}
	for i := range o.c.Params {
		if p := &o.c.Params[i]; p.FQN != "" && strings.ToLower(p.FQN) != p.Name {
			o.c.Warn(layout.KeyState+"."+p.FQN, "the parameter is registered as %q", p.Name)
		}
	}
}
