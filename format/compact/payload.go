package compact

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

// The keys of a payload and, from format to deterministic, of the marker too.
const (
	keyFormat        = "format"
	keyGlobalRank    = "global_rank"
	keyGroupRank     = "group_rank"
	keyWorldSize     = "world_size"
	keyWorldRanks    = "world_ranks"
	keyMesh          = "mesh"
	keySignature     = "signature"
	keySignatures    = "signatures" // of the marker, by rank
	keyManifest      = "parameter_manifest"
	keyGlobalStep    = "global_step"
	keyDeterministic = "deterministic"
	keyStates        = "states"
	keyCodebook      = "codebook"
)

// payloadKeys are the keys of a payload, in the order in which they are written.
var payloadKeys = []string{keyFormat, keyGlobalRank, keyGroupRank, keyWorldSize, keyWorldRanks, keyMesh, keySignature,
	keyManifest, keyGlobalStep, keyDeterministic, keyStates, keyCodebook}

// payload is one rank's payload while it is read.
type payload struct {
	*outer
	rank int
	item string // what messages call it
	d    *pickle.Dict
	// signature and states, one of each for every parameter.
	signature, states []*pickle.Dict
}

// read opens the payload in place and adds its rank to the checkpoint. An error
// ends the reading of this payload.
func (p *payload) read(v pickle.Value) error {
	t, err := asPayload(v)
	if err != nil {
		return err
	}
	a, err := torchfile.Open(t.AsStorage(), torchfile.Options{})
	if err != nil {
		return err
	}
	if p.d, err = layout.Dict(a.Root(), ""); err != nil {
		return err
	}
	if err := p.complete(); err != nil {
		return err
	}
	if p.marker == nil {
		p.adopt()
	}
	for _, rule := range payloadRules {
		p.compare(rule.key, rule.kind, rule.want(p, rule.key))
	}
	if p.signature, err = dicts(p.d, keySignature); err != nil {
		return err
	}
	if p.states, err = dicts(p.d, keyStates); err != nil {
		return err
	}
	if _, isList := first(p.d, keyStates).(*pickle.List); !isList { // S1
		p.c.Fault(fault.Corrupt, p.item+"."+keyStates, "it is a tuple, and a loader takes only a list")
	}
	if len(p.states) != len(p.signature) { // S1
		return fault.New(fault.Corrupt, "there are states of %d parameters and signatures of %d", len(p.states), len(p.signature))
	}
	if p.outer.signature == nil {
		if err := p.parameters(); err != nil {
			return err
		}
		p.outer.signature = p.signature
	}
	if len(p.signature) != len(p.c.Params) {
		return fault.New(fault.Corrupt, "it has %d parameters, and other payloads have %d", len(p.signature), len(p.c.Params))
	}
	return p.addRank(t, a)
}

// complete checks that exactly the known keys are there (rule P1).
func (p *payload) complete() error {
	var missing, extra []string
	for _, key := range payloadKeys {
		if !has(p.d, key) {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.Corrupt, "the payload lacks %s", strings.Join(missing, ", "))
	}
	for _, pair := range p.d.Pairs {
		if key, _ := pair.Key.(string); !slices.Contains(payloadKeys, key) && len(extra) < 8 {
			extra = append(extra, tree.Name(pair.Key))
		}
	}
	if len(extra) > 0 {
		p.c.Fault(fault.Corrupt, p.item, "the payload has keys that a loader refuses: %s", strings.Join(extra, ", "))
	}
	return nil
}

// adopt takes a payload's word where no group has a marker.
func (p *payload) adopt() {
	p.marker = &pickle.Dict{}
	for _, key := range []string{keyFormat, keyWorldSize, keyWorldRanks, keyMesh, keyManifest, keyGlobalStep, keyDeterministic} {
		p.marker.Set(key, first(p.d, key))
	}
	p.topology()
}

// addRank reads the states of all parameters.
func (p *payload) addRank(t *tensor.Tensor, a *torchfile.Archive) error {
	rank := checkpoint.Rank{GlobalRank: p.rank, Coordinate: p.coordinate(p.rank), Payload: t, Verify: a.Verify,
		Shards: make([]checkpoint.Shard, len(p.states))}
	if book := first(p.d, keyCodebook); book != nil {
		var ok bool
		if rank.Codebook, ok = book.(*tensor.Tensor); !ok {
			p.c.Fault(fault.Corrupt, p.item+"."+keyCodebook, "it is %s, expected a tensor or None", tree.Describe(book))
		}
	}
	for i := range p.states {
		p.shard(&rank, i)
	}
	p.c.CheckCodebook(&rank, p.item+"."+keyCodebook)
	p.c.Ranks = append(p.c.Ranks, rank)
	return nil
}

// dicts reads a list of dicts.
func dicts(d *pickle.Dict, key string) ([]*pickle.Dict, error) {
	items, ok := pickle.Sequence(first(d, key))
	if !ok {
		return nil, fault.New(fault.Corrupt, "it is %s, expected a list", tree.Describe(first(d, key))).In(key)
	}
	out := make([]*pickle.Dict, len(items))
	for i, v := range items {
		var err error
		if out[i], err = layout.Dict(v, ""); err != nil {
			return nil, fault.Within(err, "", fmt.Sprintf("%s.%d", key, i))
		}
	}
	return out, nil
}
