package native

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

func decode(t *testing.T, path string, keys ...string) *pickle.Dict {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := torchfile.Open(tensor.Memory(data), torchfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := tree.Get(a.Root(), tree.Keys(keys...)...)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*pickle.Dict)
}

func at(t *testing.T, root pickle.Value, keys ...string) *pickle.Dict {
	t.Helper()
	v, err := tree.Get(root, tree.Keys(keys...)...)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*pickle.Dict)
}

// ownMetadata gives a group metadata that is not shared with the others.
func ownMetadata(t *testing.T, root *pickle.Dict, group string, change func(m *pickle.Dict)) {
	g := at(t, root, "param_groups", group)
	m := &pickle.Dict{Pairs: slices.Clone(at(t, g, layout.KeyMetadata).Pairs)}
	change(m)
	g.Set(layout.KeyMetadata, m)
}

func read(t *testing.T, root *pickle.Dict) *checkpoint.Checkpoint {
	t.Helper()
	s, err := layout.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	c := &checkpoint.Checkpoint{Path: "x.pt", Root: root}
	if !Is(s) {
		t.Fatal("it is not recognised as Gefen's")
	}
	Read(c, s)
	return c
}

func mentions(faults []*fault.Error, text string) bool {
	return slices.ContainsFunc(faults, func(f *fault.Error) bool {
		return strings.Contains(f.Item+": "+f.Message, text) && f.Path == "x.pt"
	})
}

func TestCommonRules(t *testing.T) {
	other := tensor.FromFloat32s([]int64{256}, make([]float32, 256))
	tested := map[string]bool{}
	for _, c := range []struct {
		rule, name string
		change     func(d *pickle.Dict)
		says       string // "" for none
	}{
		{"", "as it is written", func(*pickle.Dict) {}, ""},
		{"", "no top level, as DCP leaves it", func(d *pickle.Dict) {
			d.Delete("gefen_global_step")
			d.Delete("gefen_codebook")
			d.Delete("gefen_deterministic")
		}, ""},
		{"", "no metadata, as before 0.4", func(d *pickle.Dict) {
			for _, g := range []string{"0", "1"} {
				at(t, d, "param_groups", g).Delete(layout.KeyMetadata)
			}
		}, ""},
		{"", "no deterministic", func(d *pickle.Dict) {
			at(t, d, "param_groups", "0", layout.KeyMetadata).Delete("deterministic")
			d.Delete("gefen_deterministic")
		}, ""},
		{"N1", "metadata on one group", func(d *pickle.Dict) { at(t, d, "param_groups", "1").Delete(layout.KeyMetadata) }, "1 of 2 groups have no"},
		{"N2", "version 9", func(d *pickle.Dict) {
			at(t, d, "param_groups", "0", layout.KeyMetadata).Set("format_version", int64(9))
		}, "format_version: it is 9"},
		{"N2", "version 2", func(d *pickle.Dict) {
			at(t, d, "param_groups", "0", layout.KeyMetadata).Set("format_version", int64(2))
		}, ""},
		{"N3", "groups of two steps", func(d *pickle.Dict) {
			ownMetadata(t, d, "1", func(m *pickle.Dict) { m.Set("global_step", int64(9)) })
		}, "param_groups.1._gefen_checkpoint_metadata.global_step: the groups disagree"},
		{"N3", "groups of two codebooks", func(d *pickle.Dict) { ownMetadata(t, d, "1", func(m *pickle.Dict) { m.Set("codebook", other) }) }, "metadata.codebook: the groups disagree"},
		{"N3", "equal copies", func(d *pickle.Dict) { ownMetadata(t, d, "1", func(*pickle.Dict) {}) }, ""},
		{"N4", "two steps", func(d *pickle.Dict) { d.Set("gefen_global_step", int64(9)) }, "gefen_global_step: it is 9, and the groups' metadata has 4"},
		{"N4", "two codebooks", func(d *pickle.Dict) { d.Set("gefen_codebook", other) }, "gefen_codebook: it is"},
		{"N4", "two policies", func(d *pickle.Dict) { d.Set("gefen_deterministic", true) }, "gefen_deterministic: it is True"},
		{"N4", "metadata without the step", func(d *pickle.Dict) { at(t, d, "param_groups", "0", layout.KeyMetadata).Delete("global_step") }, "gefen_global_step: it is 4, and the groups' metadata has 0"},
		{"N5", "no codebook", func(d *pickle.Dict) {
			d.Delete("gefen_codebook")
			at(t, d, "param_groups", "0", layout.KeyMetadata).Set("codebook", nil)
		}, "codebook: there are momentum indices"},
		{"N6", "deterministic 0", func(d *pickle.Dict) {
			d.Set("gefen_deterministic", int64(0))
			at(t, d, "param_groups", "0", layout.KeyMetadata).Set("deterministic", int64(0))
		}, "gefen_deterministic: it is 0"},
		{"N7", "step 4.0", func(d *pickle.Dict) {
			d.Set("gefen_global_step", 4.0)
			at(t, d, "param_groups", "0", layout.KeyMetadata).Set("global_step", 4.0)
		}, "gefen_global_step: it is 4, expected an integer"},
		{"S9", "a magnitude of another type", func(d *pickle.Dict) { at(t, d, "state", "2").Set("m_magnitude", tensor.FromInt64(1)) }, "state.2.m_magnitude: it is int64"},
		{"", "names for fewer", func(d *pickle.Dict) {
			at(t, d, "param_groups", "0").Set("param_names", pickle.StringList([]string{"a"}))
		}, "param_groups.0.param_names: it is a list of 1, for"},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			tested[c.rule] = true
			root := decode(t, "../../testdata/checkpoints/native-block-1/full.pt", "optimizer")
			c.change(root)
			cp := read(t, root)
			if c.says == "" && len(cp.Faults) > 0 || c.says != "" && !mentions(cp.Faults, c.says) {
				t.Errorf("%v; want %q", cp.Faults, c.says)
			}
			if c.says == "" && (cp.GlobalStep != 4 || cp.Ranks[0].Codebook == nil || len(cp.Params) != 13) {
				t.Errorf("step %d, codebook %v, %d parameters", cp.GlobalStep, cp.Ranks[0].Codebook, len(cp.Params))
			}
		})
	}
	for _, rule := range commonRules {
		if !tested[rule.number] {
			t.Errorf("no case breaks rule %s", rule.number)
		}
	}
}

func TestOwners(t *testing.T) {
	manifest := func(d *pickle.Dict) *pickle.Dict { return at(t, d, keyOwners) }
	param := func(d *pickle.Dict, i string) *pickle.Dict { return at(t, d, keyOwners, "groups", "0", "params", i) }
	for _, c := range []struct {
		rule, name string
		change     func(d *pickle.Dict)
		says       string
	}{
		{"", "as it is written", func(*pickle.Dict) {}, ""},
		{"", "version 1", func(d *pickle.Dict) { manifest(d).Set("version", int64(1)); manifest(d).Delete("groups") }, ""},
		{"M1", "two manifests", func(d *pickle.Dict) {
			copied := &pickle.Dict{Pairs: slices.Clone(manifest(d).Pairs)}
			copied.Set("version", int64(1))
			d.Set(keyOwners, copied)
		}, "several manifests of owners"},
		{"M2", "version 3", func(d *pickle.Dict) { manifest(d).Set("version", int64(3)) }, "version 3, expected 1 or 2"},
		{"M2", "another ownership", func(d *pickle.Dict) { manifest(d).Set("ownership", "x") }, "ownership is \"x\""},
		{"M2", "not gathered", func(d *pickle.Dict) { manifest(d).Set("consolidated", false) }, "not gathered from its owners"},
		{"M3", "no world", func(d *pickle.Dict) { at(t, d, keyOwners, "groups", "0").Delete("world_size") }, "takes a world_size"},
		{"M4", "an id of nobody", func(d *pickle.Dict) { param(d, "1").Set("saved_id", int64(9)) }, "saved_id 9 is no parameter's"},
		{"M5", "another owner", func(d *pickle.Dict) { param(d, "1").Set("owner", int64(0)) }, "params.1: the owner is 0, expected 1"},
		{"M5", "another name", func(d *pickle.Dict) { param(d, "1").Set("name", "x") }, "the name is \"x\""},
		{"M5", "no shape", func(d *pickle.Dict) { param(d, "1").Set("shape", nil) }, "the shape is None"},
		{"M5", "other keys", func(d *pickle.Dict) { at(t, d, "state", "1").Delete("normuon_v") }, "the manifest says"},
		{"M5", "not initialized", func(d *pickle.Dict) { param(d, "1").Set("initialized", false) }, "initialized is False"},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			root := decode(t, "../../testdata/checkpoints/muon-distributed-2/raw.pt")
			c.change(root)
			cp := read(t, root)
			if c.says == "" && len(cp.Faults) > 0 || c.says != "" && !mentions(cp.Faults, c.says) {
				t.Errorf("%v; want %q", cp.Faults, c.says)
			}
			if cp.Owners == nil {
				t.Error("the manifest was not read")
			}
		})
	}
}

// In modes distributed the manifest has the shapes.
func TestShapesOfOwners(t *testing.T) {
	c := read(t, decode(t, "../../testdata/checkpoints/muon-distributed-2/raw.pt"))
	if p := c.Params[1]; p.Name != "blocks.0.qkv.weight" || !slices.Equal(p.Shape, []int64{48, 16}) || p.ShardedMode != checkpoint.ModeDistributed {
		t.Errorf("%+v", p)
	}
}

// bf16 is a bfloat16 tensor of values that bfloat16 has.
func bf16(shape []int64, values ...float32) *tensor.Tensor {
	var data []byte
	for _, v := range values {
		b := math.Float32bits(v) >> 16
		data = append(data, byte(b), byte(b>>8))
	}
	return tensor.FromBytes(tensor.BFloat16, shape, data)
}

func half(shape []int64, bits ...uint16) *tensor.Tensor {
	var data []byte
	for _, b := range bits {
		data = append(data, byte(b), byte(b>>8))
	}
	return tensor.FromBytes(tensor.Float16, shape, data)
}

// Upstream Gefen's state, one group per parameter, is read as Gefen-X would have
// written it.
func TestUpstream(t *testing.T) {
	book := make([]float32, 256)
	for i := range book {
		book[i] = float32(i)/127.5 - 1
	}
	index := func(blocks, period int64) *tensor.Tensor {
		return tensor.FromBytes(tensor.Uint8, []int64{blocks, period}, make([]byte, blocks*period))
	}
	group := func(name string, id int64) pickle.Value {
		return pickle.NewDict("name", name, "lr", 0.1, "beta1", 0.9, "beta2", 0.99, "eps", 1e-8, "weight_decay", 0.0, "params", pickle.NewList(id))
	}
	root := pickle.NewDict(
		"state", pickle.NewDict(
			int64(0), pickle.NewDict("automatic_period", int64(1), "m_codebook_shape", pickle.IntTuple([]int64{6, 1}), "m_codebook", index(6, 1),
				"m_magnitude", bf16([]int64{2, 1}, 0.5, 2), "vmean", bf16([]int64{6, 1}, 1, 2, 3, 4, 5, 6), "step", int64(7), "period_one_divisor", int64(3)),
			int64(1), pickle.NewDict("automatic_period", int64(4), "m_codebook_shape", pickle.IntTuple([]int64{2, 4}), "m_codebook", index(2, 4),
				"m_magnitude", half([]int64{2, 1}, 0x3c00, 0x0001), "vmean", half([]int64{2, 1}, 0x4000, 0x7bff), "step", int64(7)),
			int64(2), pickle.NewDict(),
		),
		"param_groups", pickle.NewList(group("Embed", 0), group("proj", 1), group("bias", 2)),
		"gefen_global_step", int64(7), "gefen_codebook", tensor.FromFloat32s([]int64{256}, book),
	)
	c := read(t, root)
	if len(c.Faults) > 0 {
		t.Fatal(c.Faults)
	}
	if !mentions(c.Warnings, "upstream Gefen") {
		t.Errorf("%v", c.Warnings)
	}
	if c.Params[0].Name != "embed" || c.GlobalStep != 7 || c.Deterministic != nil {
		t.Errorf("%+v, step %d", c.Params[0], c.GlobalStep)
	}
	for i, want := range [][2][]float32{
		{{0.5, 0.5, 0.5, 2, 2, 2}, {1, 2, 3, 4, 5, 6}},
		{{1, 0x1p-24}, {2, 65504}},
	} {
		s := c.Ranks[0].Shards[i].State
		if s.VmeanStep != 7 {
			t.Errorf("vmean_step %d", s.VmeanStep)
		}
		for j, plane := range []*tensor.Tensor{s.Magnitude, s.Vmean} {
			if got, err := plane.Float32s(); err != nil || !slices.Equal(got, want[j]) {
				t.Errorf("parameter %d: %v, %v; want %v", i, got, err, want[j])
			}
		}
		if err := s.Magnitude.Validate(); err != nil {
			t.Error(err)
		}
	}
	if c.Ranks[0].Shards[2].State != nil {
		t.Error("a fresh parameter has state")
	}
}

// Before 0.3 every parameter was a group of its own.
func TestGroupsOfOne(t *testing.T) {
	root := decode(t, "../../testdata/checkpoints/native-block-1/full.pt", "optimizer")
	groups := &pickle.List{}
	for g, n := range []int{6, 7} {
		for i := range n {
			id, err := tree.Get(root, "param_groups", int64(g), "params", int64(i))
			if err != nil {
				t.Fatal(err)
			}
			name, err := tree.Get(root, "param_groups", int64(g), "param_names", int64(i))
			if err != nil {
				t.Fatal(err)
			}
			groups.Items = append(groups.Items, pickle.NewDict("name", name, "lr", 0.1, "params", pickle.NewList(id)))
		}
	}
	root.Set("param_groups", groups)
	c := read(t, root)
	if len(c.Faults) > 0 || !mentions(c.Warnings, "a group of its own") || len(c.Groups) != 13 || c.Params[2].Name != "blocks.0.proj.weight" {
		t.Errorf("%v, %v, %d groups, %q", c.Faults, c.Warnings, len(c.Groups), c.Params[2].Name)
	}
}

func TestUpstreamThatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		magnitude *tensor.Tensor
		says      string
	}{
		"blocks that are not shared": {bf16([]int64{4, 1}, 1, 1, 1, 1), "there are 4 values for 6 blocks"},
		"integers":                   {tensor.FromBytes(tensor.Int32, []int64{1, 1}, make([]byte, 4)), "it is int32, expected floating-point"},
		"none":                       {bf16([]int64{0, 1}), "there are 0 values"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := expand(pickle.NewDict("m_codebook_shape", nil, "m_codebook", tensor.FromBytes(tensor.Uint8, []int64{6, 1}, make([]byte, 6)), "m_magnitude", c.magnitude))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A plane that is widened can be read at any byte.
func TestRepeatedAtAnyOffset(t *testing.T) {
	r := &repeated{bf16([]int64{3, 1}, 0.5, -2, 7), 2}
	var all []byte
	for _, v := range []float32{0.5, 0.5, -2, -2, 7, 7} {
		b := math.Float32bits(v)
		all = append(all, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	for from := range all {
		for to := from; to <= len(all); to++ {
			got := make([]byte, to-from)
			if n, err := r.ReadAt(got, int64(from)); n != len(got) || err != nil || !slices.Equal(got, all[from:to]) {
				t.Fatalf("[%d, %d): %d, %v, %v; want %v", from, to, n, err, got, all[from:to])
			}
		}
	}
	if n, err := r.ReadAt(make([]byte, 9), 20); n != 4 || err == nil {
		t.Errorf("%d, %v past the end", n, err)
	}
}

func TestFromHalf(t *testing.T) {
	for bits, want := range map[uint16]float64{0: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0400: 0x1p-14, 0x03ff: 1023 * 0x1p-24, 0x8001: -0x1p-24,
		0x3555: 0.333251953125, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := math.Float32frombits(fromHalf(bits)); float64(got) != want {
			t.Errorf("%04x: %v, want %v", bits, got, want)
		}
	}
	if got := math.Float32frombits(fromHalf(0x7e00)); !math.IsNaN(float64(got)) {
		t.Errorf("NaN: %v", got)
	}
}

func TestAdamW(t *testing.T) {
	root := decode(t, "../testdata/checkpoints/hybrid-adamw-1/full.pt", "optimizer", "backup")
	s, err := layout.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	c := &checkpoint.Checkpoint{Path: "x.pt"}
	ReadAdamW(c, s)
	if len(c.Faults)+len(c.Warnings) > 0 || c.Optimizer != checkpoint.AdamW || c.GlobalStep != 3 {
		t.Errorf("%+v", c)
	}
	g := c.Groups[0]
	if g.LR != 0.01 || g.Beta1 != 0.9 || g.Beta2 != 0.999 || g.Eps != 1e-8 {
		t.Errorf("%+v", g)
	}
	if p := c.Params[0]; p.Name != "embed" || !slices.Equal(p.Shape, []int64{7, 4}) || c.StateBytes(0) != 4+2*4*28 {
		t.Errorf("%+v, %d bytes", p, c.StateBytes(0))
	}
}
