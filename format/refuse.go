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
	// closed says that an optimizer inside is not to be read: it is of another
	// world than the parameters'.
	closed bool
}

const (
	giveOptimizer = "give the optimizer's state"
	noPartitions  = "ZeRO partitions have no parameter boundaries; save from a run without ZeRO"
	needsFSDP2    = "Gefen needs FSDP2 (fully_shard), whose parameters keep their names"
)

// looks are the things that people give instead of a checkpoint of Gefen, by the
// keys that tell them; the first that fits is named.
var looks = []look{
	{all: []string{"before", "grads", "after"}, what: "a recording of gradients and parameters (keys before, grads, after)", hint: "give it to verify with --gradients"},
	{any: "__gefen_portable_", what: "a checkpoint of Gefen-X's unmerged portable format", hint: "load it with the branch that wrote it and save with GefenDCPState", closed: true},
	{all: []string{"partition_count"}, what: "a DeepSpeed ZeRO partition", hint: noPartitions, closed: true},
	{all: []string{"base_optimizer_state"}, what: "a DeepSpeed ZeRO partition", hint: noPartitions, closed: true},
	{all: []string{"single_partition_of_fp32_groups"}, what: "a DeepSpeed ZeRO partition", hint: noPartitions, closed: true},
	{all: []string{"zero_stage", "optimizer_state_dict"}, what: "a DeepSpeed ZeRO partition", hint: noPartitions, closed: true},
	{all: []string{"ds_version"}, what: "a DeepSpeed checkpoint", hint: "save from a run without ZeRO"},
	{any: flatParam, what: "an FSDP1 checkpoint with flat parameters", hint: needsFSDP2},
	{all: []string{"base_lrs"}, what: "the state of a learning rate scheduler", hint: giveOptimizer},
	{all: []string{"last_epoch", "_step_count"}, what: "the state of a learning rate scheduler", hint: giveOptimizer},
	{all: []string{"scale", "growth_factor"}, what: "the state of a gradient scaler", hint: giveOptimizer},
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

// refuse says what a tree without any optimizer looks like: the outermost thing
// in it that can be told, else what its keys are.
func refuse(root pickle.Value) error {
	var e *fault.Error
	tree.Walk(root, func(path tree.Path, v pickle.Value) bool {
		d, ok := pickle.AsDict(v)
		if !ok || e != nil {
			return e == nil && len(path) < searchDepth
		}
		if i := slices.IndexFunc(looks, func(l look) bool { return l.fits(d) }); i >= 0 {
			e = fault.New(fault.Unsupported, "this looks like %s, no checkpoint of an optimizer", looks[i].what).WithHint("%s", looks[i].hint)
			if len(path) > 0 {
				e = fault.New(fault.Unsupported, "there is no optimizer's state; under %s is what looks like %s", path, looks[i].what).WithHint("%s", looks[i].hint)
			}
		}
		return e == nil && len(path) < searchDepth
	})
	if e == nil {
		e = fault.New(fault.Unsupported, "%s", describe(root)).WithHint("give a file or directory that holds the optimizer's state_dict")
	}
	return e
}

// describe says what a value holds by its keys.
func describe(v pickle.Value) string {
	d, ok := pickle.AsDict(v)
	if !ok {
		return "this holds " + tree.Describe(v) + ", no optimizer"
	}
	tensors := 0
	var keys []string
	for _, p := range d.Pairs {
		if _, ok := p.Value.(*tensor.Tensor); ok {
			tensors++
		}
		if len(keys) < 4 {
			keys = append(keys, tree.Name(p.Key))
		}
	}
	list := strings.Join(keys, ", ")
	if len(d.Pairs) > len(keys) {
		list += ", ..."
	}
	if tensors > 0 && 2*tensors >= len(d.Pairs) {
		return fmt.Sprintf("this looks like a model's state dict (%d tensors: %s), no checkpoint of an optimizer", tensors, list)
	}
	return fmt.Sprintf("no optimizer's state is found among %d keys (%s)", len(d.Pairs), list)
}

// flatParam is in the name of every parameter of FSDP1.
const flatParam = "_flat_param"

// refuseFlat refuses the optimizer of an FSDP1 model, Gefen's too: its state is
// of flat parameters, whose parts nothing tells apart.
func refuseFlat(s *layout.State) error {
	for _, e := range s.Entries {
		if strings.Contains(e.Key, flatParam) {
			return fault.New(fault.Unsupported, "parameter %s is an FSDP1 flat parameter", e.Key).WithHint(needsFSDP2)
		}
	}
	return nil
}

// others are optimizers that are not Gefen's, by a key of their state.
var others = []struct{ key, what string }{
	{"absmax1", "an 8-bit optimizer of bitsandbytes"},
	{"qmap1", "an 8-bit optimizer of bitsandbytes"},
	{"state1", "an optimizer of bitsandbytes"},
	{"exp_avg_sq_row", "Adafactor"},
	{"exp_avg_sq", "Adam or AdamW"},
	{"exp_avg", "an optimizer of the Adam family"},
	{"momentum_buffer", "SGD with momentum, or plain Muon"},
	{"square_avg", "RMSprop or Adadelta"},
}

// refuseOptimizer says whose state it is, if not Gefen's.
func refuseOptimizer(s *layout.State) error {
	for _, e := range s.Entries {
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
