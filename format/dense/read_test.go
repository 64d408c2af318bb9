package dense_test

import (
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// counters are those of one slot.
type counters struct{ initialized, step, vmeanStep int64 }

// slots is the dense state at global step 9 of as many vectors of two elements,
// each of the given value.
func slots(value float32, all ...counters) *pickle.Dict {
	identities := &pickle.List{}
	for i := range all {
		identities.Items = append(identities.Items, pickle.NewDict("name", string(rune('a'+i)), "group", int64(0), "shape", pickle.IntList([]int64{2})))
	}
	d := pickle.NewDict("format_version", tensor.FromInt64(2), "global_step", tensor.FromInt64(9), "deterministic", int64(0),
		"slot_count", tensor.FromInt64(int64(len(all))), "group_count", int64(1), "param_identities", identities,
		"param_group_hypers", pickle.NewList(pickle.NewDict("lr", 0.1, "beta1", 0.9, "beta2", 0.99, "eps", 1e-8, "weight_decay", 0.0)))
	for i, c := range all {
		key := func(field string) string { return "slot_0000000" + string(rune('0'+i)) + "." + field }
		d.Set(key("initialized"), tensor.FromBytes(tensor.Uint8, []int64{}, []byte{byte(c.initialized)}))
		d.Set(key("step"), tensor.FromInt64(c.step))
		d.Set(key("vmean_step"), tensor.FromInt64(c.vmeanStep))
		d.Set(key("momentum"), tensor.FromFloat32s([]int64{2}, []float32{0, value}))
		d.Set(key("second_moment"), tensor.FromFloat32s([]int64{2}, []float32{0, value}))
	}
	return d
}

func read(d *pickle.Dict) *checkpoint.Checkpoint {
	c := &checkpoint.Checkpoint{Path: "x", Root: d}
	dense.Read(c, d)
	return c
}

// Where a shard is empty, GefenDCPState mixes the counters of ranks with state
// and without.
func TestRepair(t *testing.T) {
	sound := counters{1, 7, 7}
	for name, c := range map[string]struct {
		slots []counters
		value float32
		want  counters // of the first slot
		warns bool
	}{
		"sound":                       {[]counters{{1, 5, 4}, sound}, 1, counters{1, 5, 4}, false},
		"fresh":                       {[]counters{{0, 0, 0}, sound}, 0, counters{}, false},
		"fresh, of negative zeros":    {[]counters{{0, 0, 0}, sound}, negativeZero(), counters{}, false},
		"no step":                     {[]counters{{1, 0, 5}, sound}, 1, counters{1, 5, 5}, true},
		"no vmean_step":               {[]counters{{1, 5, 0}, sound}, 1, counters{1, 5, 5}, true},
		"uninitialized with step":     {[]counters{{0, 5, 0}, sound}, 1, counters{1, 5, 5}, true},
		"uninitialized with history":  {[]counters{{0, 5, 4}, sound}, 1, counters{1, 5, 4}, true},
		"no counters, most have 7":    {[]counters{{1, 0, 0}, sound, sound, {1, 6, 6}}, 1, counters{1, 7, 7}, true},
		"no counters, none has any":   {[]counters{{1, 0, 0}}, 1, counters{1, 9, 9}, true},
		"nothing but elements":        {[]counters{{0, 0, 0}, sound}, 1, counters{1, 7, 7}, true},
		"of two as common the larger": {[]counters{{1, 0, 0}, {1, 6, 6}, {1, 7, 7}}, 1, counters{1, 7, 7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cp := read(slots(c.value, c.slots...))
			if len(cp.Faults) > 0 {
				t.Fatal(cp.Faults)
			}
			s := cp.Slots[0]
			got := counters{0, s.Step, s.VmeanStep}
			if s.Initialized {
				got.initialized = 1
			}
			if got != c.want || (len(cp.Warnings) == 1) != c.warns {
				t.Errorf("%v, warnings %v; want %v", got, cp.Warnings, c.want)
			}
			if c.warns && !strings.Contains(cp.Warnings[0].Message, "real Gefen-X will refuse this") {
				t.Error(cp.Warnings[0])
			}
		})
	}
}

func negativeZero() float32 {
	zero := float32(0)
	return -zero * 1
}

func TestDenseRules(t *testing.T) {
	identity := func(d *pickle.Dict) *pickle.Dict {
		v, _ := d.Get("param_identities")
		return v.(*pickle.List).Items[0].(*pickle.Dict)
	}
	hypers := func(d *pickle.Dict) *pickle.Dict {
		v, _ := d.Get("param_group_hypers")
		return v.(*pickle.List).Items[0].(*pickle.Dict)
	}
	for _, c := range []struct {
		rule, name string
		change     func(d *pickle.Dict)
		says       string // "" for none
		kind       fault.Kind
	}{
		{"D1", "no slot_count", func(d *pickle.Dict) { d.Delete("slot_count") }, "slot_count: the dense state has no such key", fault.Corrupt},
		{"D1", "no identities", func(d *pickle.Dict) { d.Delete("param_identities") }, "param_identities: it is None", fault.Corrupt},
		{"D2", "version 1", func(d *pickle.Dict) { d.Set("format_version", int64(1)) }, "dense format version 1", fault.Unsupported},
		{"D2", "version as an integer", func(d *pickle.Dict) { d.Set("format_version", int64(2)) }, "", 0},
		{"D3", "more slots", func(d *pickle.Dict) { d.Set("slot_count", int64(3)) }, "param_identities: it is a list of 2, expected a list of 3", fault.Corrupt},
		{"D3", "slots beyond all", func(d *pickle.Dict) { d.Set("slot_count", int64(1)<<40) }, "slots in 1 groups", fault.Corrupt},
		{"D3", "more groups", func(d *pickle.Dict) { d.Set("group_count", int64(2)) }, "param_group_hypers: it is a list of 1", fault.Corrupt},
		{"D4", "a tuple", func(d *pickle.Dict) { d.Set("param_identities", pickle.NewTuple(identity(d), identity(d))) }, "param_identities: it is a tuple of 2", fault.Corrupt},
		{"D4", "another key", func(d *pickle.Dict) { identity(d).Set("note", "x") }, "an identity has 4 keys", fault.Corrupt},
		{"D4", "a group that is not", func(d *pickle.Dict) { identity(d).Set("group", int64(1)) }, "a group below 1", fault.Corrupt},
		{"D4", "a name twice", func(d *pickle.Dict) { identity(d).Set("name", "b") }, "another parameter has the name \"b\"", fault.Corrupt},
		{"D4", "a shape beyond all", func(d *pickle.Dict) { identity(d).Set("shape", pickle.IntList([]int64{1 << 40, 1 << 40})) }, "an identity takes a name", fault.Corrupt},
		{"D5", "no eps", func(d *pickle.Dict) { hypers(d).Delete("eps") }, "the group has no eps", fault.Corrupt},
		{"D5", "eps of 0", func(d *pickle.Dict) { hypers(d).Set("eps", 0.0) }, "eps: 0", fault.Corrupt},
		{"D5", "more keys", func(d *pickle.Dict) { hypers(d).Set("momentum", 0.5) }, "", 0},
		{"D7", "step below 0", func(d *pickle.Dict) { d.Set("slot_00000000.step", int64(-1)) }, "slot_00000000.step: the counter is -1", fault.Corrupt},
		{"D7", "step a float tensor", func(d *pickle.Dict) { d.Set("slot_00000000.step", tensor.FromFloat32s([]int64{}, []float32{5})) }, "", 0},
		{"D8", "no momentum", func(d *pickle.Dict) { d.Delete("slot_00000001.momentum") }, "slot_00000001.momentum: it is None", fault.Corrupt},
		{"D8", "momentum of bfloat16", func(d *pickle.Dict) {
			d.Set("slot_00000001.momentum", tensor.FromBytes(tensor.BFloat16, []int64{2}, make([]byte, 4)))
		}, "slot_00000001.momentum: it is a tensor bfloat16", fault.Corrupt},
		{"D8", "another shape", func(d *pickle.Dict) {
			d.Set("slot_00000001.second_moment", tensor.FromFloat32s([]int64{1}, []float32{1}))
		}, "slot_00000001.second_moment: it is a tensor float32 [1]", fault.Corrupt},
		{"", "more keys", func(d *pickle.Dict) { d.Set("note", "x") }, "", 0},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			d := slots(1, counters{1, 5, 5}, counters{1, 5, 5})
			c.change(d)
			cp := read(d)
			if c.says == "" {
				if len(cp.Faults)+len(cp.Warnings) > 0 {
					t.Errorf("%v, %v", cp.Faults, cp.Warnings)
				}
				return
			}
			for _, f := range cp.Faults {
				if strings.Contains(f.Item+": "+f.Message, c.says) && f.Kind == c.kind && f.Path == "x" {
					return
				}
			}
			t.Errorf("%v; want %q", cp.Faults, c.says)
		})
	}
}
