package format

import (
	"fmt"
	"slices"
	"strings"

	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// look is how to tell something by its keys.
type look struct {
	all        []string // keys that must all be there
	any        string   // part of some key; "" for none
	what, hint string
}

// looks are the things that people give instead of a checkpoint of Gefen, by the
// keys that tell them; the first that fits is named.
var looks = []look{
	{all: []string{"before", "grads", "after"}, what: "a recording of gradients and parameters (keys before, grads, after)", hint: "give it to verify with --gradients"},
	{any: "__gefen_portable_", what: "a checkpoint of Gefen-X's unmerged portable format", hint: "load it with the branch that wrote it and save with GefenDCPState"},
	{all: []string{"base_lrs"}, what: "the state of a learning rate scheduler", hint: "give the optimizer's state"},
	{all: []string{"last_epoch", "_step_count"}, what: "the state of a learning rate scheduler", hint: "give the optimizer's state"},
	{any: "_flat_param", what: "an FSDP1 checkpoint with flat parameters", hint: "Gefen needs FSDP2 (fully_shard), whose parameters keep their names"},
	{all: []string{"partition_count"}, what: "a DeepSpeed ZeRO partition", hint: "ZeRO partitions have no parameter boundaries; save from a run without ZeRO"},
	{all: []string{"base_optimizer_state"}, what: "a DeepSpeed ZeRO partition", hint: "ZeRO partitions have no parameter boundaries; save from a run without ZeRO"},
	{all: []string{"optimizer_state_dict", "ds_version"}, what: "a DeepSpeed checkpoint", hint: "save from a run without ZeRO"},
}

// refuse says what a tree without any optimizer looks like.
func refuse(root pickle.Value) error {
	e := fault.New(fault.Unsupported, "%s", describe(root))
	if hint := hintFor(root); hint != "" {
		return e.WithHint("%s", hint)
	}
	return e.WithHint("give a file or directory that holds the optimizer's state_dict")
}

// describe says what a value looks like that is no optimizer of Gefen.
func describe(v pickle.Value) string {
	d, ok := pickle.AsDict(v)
	if !ok {
		return "this holds " + tree.Describe(v) + ", no optimizer"
	}
	for _, l := range looks {
		if l.fits(d) {
			return "this looks like " + l.what + ", no checkpoint of an optimizer"
		}
	}
	tensors := 0
	var keys []string
	for _, p := range d.Pairs {
		if _, ok := p.Value.(*tensor.Tensor); ok {
			tensors++
		}
		if len(keys) < 4 {
			keys = append(keys, fmt.Sprint(p.Key))
		}
	}
	if tensors > 0 && 2*tensors >= len(d.Pairs) {
		return fmt.Sprintf("this looks like a model's state dict (%d tensors: %s, ...), no checkpoint of an optimizer", tensors, strings.Join(keys, ", "))
	}
	return fmt.Sprintf("no optimizer's state is found among %d keys (%s)", len(d.Pairs), strings.Join(keys, ", "))
}

func hintFor(v pickle.Value) string {
	if d, ok := pickle.AsDict(v); ok {
		for _, l := range looks {
			if l.fits(d) {
				return l.hint
			}
		}
	}
	return ""
}

func (l *look) fits(d *pickle.Dict) bool {
	for _, key := range l.all {
		if _, ok := d.Get(key); !ok {
			return false
		}
	}
	return l.any == "" || slices.ContainsFunc(d.Pairs, func(p pickle.Pair) bool {
		key, _ := p.Key.(string)
		return strings.Contains(key, l.any)
	})
}

// others are optimizers that are not Gefen's, by a key of their state.
var others = []struct{ key, what string }{
	{"_flat_param", "an FSDP1 optimizer with flat parameters"},
	{"absmax1", "an 8-bit optimizer of bitsandbytes"},
	{"qmap1", "an 8-bit optimizer of bitsandbytes"},
	{"exp_avg_sq", "Adam or AdamW"},
	{"exp_avg", "an optimizer of the Adam family"},
	{"momentum_buffer", "SGD with momentum, or plain Muon"},
	{"square_avg", "RMSprop or Adadelta"},
}

// refuseOptimizer says whose state it is, if not Gefen's.
func refuseOptimizer(s *layout.State) error {
	for _, e := range s.Entries {
		if strings.Contains(e.Key, "_flat_param") {
			return fault.New(fault.Unsupported, "parameter %s is an FSDP1 flat parameter", e.Key).
				WithHint("Gefen needs FSDP2 (fully_shard), whose parameters keep their names")
		}
		if e.Fields == nil {
			continue
		}
		for _, o := range others {
			if _, ok := e.Fields.Get(o.key); ok {
				return fault.New(fault.Unsupported, "this is the state of %s (key %s), not of Gefen", o.what, o.key).
					WithHint("gefenckpt converts Gefen, GefenMuon and GefenMuonHybrid only")
			}
		}
	}
	return fault.New(fault.Unsupported, "an optimizer's state without anything that Gefen writes").
		WithHint("an optimizer that never stepped has nothing to convert")
}
