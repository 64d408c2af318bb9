package compact_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// decode opens a torch.save archive in memory.
func decode(t testing.TB, data []byte) pickle.Value {
	t.Helper()
	a, err := torchfile.Open(tensor.Memory(data), torchfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a.Root()
}

// encode writes one.
func encode(t testing.TB, v pickle.Value) []byte {
	t.Helper()
	f, err := torchfile.New(v, torchfile.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file is a real checkpoint taken apart: two ranks, two groups of one parameter
// each: embed (7, 4) and gain (2,).
type file struct {
	t        *testing.T
	root     *pickle.Dict // the optimizer's state dict, layout raw
	payloads []*pickle.Dict
}

func realFile(t *testing.T) *file {
	t.Helper()
	data, err := os.ReadFile("../testdata/checkpoints/containers/deep.pt")
	if err != nil {
		t.Fatal(err)
	}
	v, err := tree.Get(decode(t, data), tree.Keys("run", "train.state", "0", "opt")...)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{t: t, root: v.(*pickle.Dict)}
	for r := range 2 {
		f.payloads = append(f.payloads, decode(t, bytesOf(t, f.get("state", "0", layout.PayloadKey(r)))).(*pickle.Dict))
	}
	return f
}

func bytesOf(t testing.TB, v pickle.Value) []byte {
	t.Helper()
	data, err := v.(*tensor.Tensor).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (f *file) get(keys ...string) pickle.Value {
	f.t.Helper()
	v, err := tree.Get(f.root, tree.Keys(keys...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

func (f *file) entry(i int) *pickle.Dict { return f.get("state", strconv.Itoa(i)).(*pickle.Dict) }

func (f *file) metadata() *pickle.Dict {
	return f.get("param_groups", "0", layout.KeyMetadata).(*pickle.Dict)
}

func (f *file) marker() *pickle.Dict {
	return f.get("param_groups", "0", layout.KeyMetadata, compact.KeyMarker).(*pickle.Dict)
}

// signature is an entry of a rank's signature, in its payload.
func (f *file) signature(rank, param int) *pickle.Dict {
	v, err := tree.Get(f.payloads[rank], "signature", int64(param))
	if err != nil {
		f.t.Fatal(err)
	}
	return v.(*pickle.Dict)
}

// everywhere changes a parameter's signature on a rank in its payload and in the
// marker.
func (f *file) everywhere(rank, param int, change func(*pickle.Dict)) {
	change(f.signature(rank, param))
	if f.get("param_groups", "0", layout.KeyMetadata, compact.KeyMarker, "signatures", strconv.Itoa(rank), strconv.Itoa(param)) != pickle.Value(f.signature(rank, param)) {
		change(f.get("param_groups", "0", layout.KeyMetadata, compact.KeyMarker, "signatures", strconv.Itoa(rank), strconv.Itoa(param)).(*pickle.Dict))
	}
}

func (f *file) state(rank, param int) *pickle.Dict {
	v, err := tree.Get(f.payloads[rank], "states", int64(param))
	if err != nil {
		f.t.Fatal(err)
	}
	return v.(*pickle.Dict)
}

// pack puts the payloads back into the state.
func (f *file) pack() {
	for r, p := range f.payloads {
		if carrier := f.entry(0); p != nil {
			data := encode(f.t, p)
			carrier.Set(layout.PayloadKey(r), tensor.FromBytes(tensor.Uint8, []int64{int64(len(data))}, data))
		}
	}
}

// read opens the whole again, through an archive.
func (f *file) read() *checkpoint.Checkpoint {
	f.t.Helper()
	root := decode(f.t, encode(f.t, f.root)).(*pickle.Dict)
	s, err := layout.Read(root)
	if err != nil {
		f.t.Fatal(err)
	}
	c := &checkpoint.Checkpoint{Path: "x.pt", Root: root}
	compact.Read(c, s)
	return c
}

func TestRealFileHasNoFaults(t *testing.T) {
	f := realFile(t)
	f.pack()
	c := f.read()
	if len(c.Faults)+len(c.Warnings) > 0 || len(c.Ranks) != 2 || len(c.Params) != 2 || c.GlobalStep != 3 || c.Mesh.DimNames[0] != "dp" {
		t.Errorf("%+v", c)
	}
}

func TestRules(t *testing.T) {
	zero := tensor.FromBytes(tensor.Uint8, []int64{1}, []byte{0})
	tested := map[string]bool{}
	for _, c := range []struct {
		rule, name string
		change     func(f *file)
		says       string // in a fault, "" for none
		warns      string // in a warning, "" for none
		kind       fault.Kind
	}{
		{"O2", "no metadata", func(f *file) { f.metadata().Delete(compact.KeyMarker) }, "no group has the metadata", "", fault.Corrupt},
		{"O4", "one group without marker", func(f *file) {
			second := f.get("param_groups", "1").(*pickle.Dict)
			second.Set(layout.KeyMetadata, pickle.NewDict("format_version", int64(3)))
		}, "1 of 2 groups have no rank-local marker", "", fault.Corrupt},
		{"O5", "markers differ", func(f *file) {
			second := f.get("param_groups", "1").(*pickle.Dict)
			other := &pickle.Dict{Pairs: append([]pickle.Pair(nil), f.metadata().Pairs...)}
			marker := &pickle.Dict{Pairs: append([]pickle.Pair(nil), f.marker().Pairs...)}
			marker.Set("global_step", int64(4))
			other.Set(compact.KeyMarker, marker)
			second.Set(layout.KeyMetadata, other)
		}, "param_groups.1: its rank-local marker is not that", "", fault.Corrupt},
		{"O6", "format v1", func(f *file) { f.marker().Set("format", "rank_local_dtensor_v1") }, "rank-local marker.format", "", fault.Unsupported},
		{"O9", "world_size True", func(f *file) { f.marker().Set("world_size", true) }, "world_size: it is True", "", fault.Corrupt},
		{"O9", "world of three", func(f *file) { f.marker().Set("world_size", int64(3)) }, "payloads are missing: of rank 2; the checkpoint has 3 ranks", "", fault.Incomplete},
		{"O10", "world_ranks out of order", func(f *file) { f.marker().Set("world_ranks", pickle.IntList([]int64{1, 0})) }, "world_ranks: it is [1 0]", "", fault.Corrupt},
		{"O11", "mesh of two dimensions", func(f *file) {
			f.marker().Set("mesh", pickle.NewDict("device_type", "cpu", "shape", pickle.IntList([]int64{2, 1}), "dim_names", pickle.StringList([]string{"a", "b"}), "ranks", pickle.IntList([]int64{0, 1})))
		}, "hybrid sharding (HSDP)", "", fault.Unsupported},
		{"O11", "mesh of other ranks", func(f *file) {
			f.marker().Set("mesh", pickle.NewDict("device_type", "cpu", "shape", pickle.IntList([]int64{2}), "dim_names", pickle.StringList([]string{"dp"}), "ranks", pickle.IntList([]int64{0, 0})))
		}, "no order of 0 to 1", "", fault.Corrupt},
		{"O11", "mesh without names", func(f *file) { f.marker().Set("mesh", pickle.NewDict("device_type", "cpu")) }, "a mesh takes device_type", "", fault.Corrupt},
		{"O12", "a signature is missing", func(f *file) {
			f.get("param_groups", "0", layout.KeyMetadata, compact.KeyMarker, "signatures").(*pickle.Dict).Delete("1")
		}, "signatures: there is none of rank 1", "", fault.Corrupt},
		{"O12", "signatures by number", func(f *file) {
			d := f.get("param_groups", "0", layout.KeyMetadata, compact.KeyMarker, "signatures").(*pickle.Dict)
			for i := range d.Pairs {
				d.Pairs[i].Key = int64(i)
			}
		}, "signatures: there is none of rank 0", "", fault.Corrupt},
		{"O14", "manifest of other shapes", func(f *file) {
			f.get("param_groups", "0", layout.KeyMetadata, compact.KeyMarker, "parameter_manifest", "0").(*pickle.Dict).Set("shape", pickle.IntList([]int64{7, 5}))
		}, "parameter_manifest: 0.shape is [7 5], and the signatures say [7 4]", "", fault.Corrupt},
		{"O15", "global_step 3.0", func(f *file) { f.marker().Set("global_step", 3.0) }, "marker.global_step: it is 3, expected an integer", "", fault.Corrupt},
		{"O16", "deterministic 0", func(f *file) { f.marker().Set("deterministic", int64(0)) }, "marker.deterministic: it is 0", "", fault.Corrupt},
		{"O18", "no entry", func(f *file) { f.get("state").(*pickle.Dict).Delete(int64(1)) }, "state.1: a group names the parameter", "", fault.Corrupt},
		{"O19", "an extra key", func(f *file) { f.entry(1).Set("step", int64(1)) }, "state.1: the key \"step\"", "", fault.Corrupt},
		{"O20", "a name", func(f *file) { f.entry(1).Set("name", "gain") }, "state.1.name: it is \"gain\"", "", fault.Corrupt},
		{"O20", "0.0 for 0", func(f *file) { f.entry(1).Set("name", 0.0) }, "", "", 0},
		{"O21", "carrier and member", func(f *file) { f.entry(0).Set(layout.MemberKey, true) }, "state.0: it carries payloads, and is marked", "", fault.Corrupt},
		{"O21", "neither", func(f *file) { f.entry(1).Delete(layout.MemberKey) }, "state.1: it neither carries", "", fault.Corrupt},
		{"O22", "a second carrier", func(f *file) { f.entry(1).Set(layout.PayloadKey(0), zero) }, "it carries payloads, and so does 0", "", fault.Corrupt},
		{"O22", "no carrier", func(f *file) {
			f.payloads = nil
			f.entry(0).Delete(layout.PayloadKey(0))
			f.entry(0).Delete(layout.PayloadKey(1))
		}, "no entry carries", "", fault.Incomplete},
		{"O22", "a payload is missing", func(f *file) { f.payloads[0] = nil; f.entry(0).Delete(layout.PayloadKey(0)) }, "missing: of rank 0", "", fault.Incomplete},
		{"O22", "a payload too many", func(f *file) { f.entry(0).Set(layout.PayloadKey(2), zero) }, "payloads of ranks 2 to 2, in a world of 2", "", fault.Corrupt},
		{"O23", "member 1", func(f *file) { f.entry(1).Set(layout.MemberKey, int64(1)) }, "it is 1, expected True", "", fault.Corrupt},
		{"O24", "payload of int8", func(f *file) {
			f.payloads[0] = nil
			f.entry(0).Set(layout.PayloadKey(0), tensor.FromBytes(tensor.Int8, []int64{1}, []byte{0}))
		}, "payload of rank 0: it is a tensor int8 [1]", "", fault.Corrupt},
		{"O24", "payload of two dimensions", func(f *file) {
			f.payloads[0] = nil
			f.entry(0).Set(layout.PayloadKey(0), tensor.FromBytes(tensor.Uint8, []int64{1, 1}, []byte{0}))
		}, "payload of rank 0: it is a tensor uint8 [1 1]", "", fault.Corrupt},
		{"O24", "payload cut short", func(f *file) {
			data := encode(f.t, f.payloads[0])
			data = data[:len(data)-100]
			f.payloads[0] = nil
			f.entry(0).Set(layout.PayloadKey(0), tensor.FromBytes(tensor.Uint8, []int64{int64(len(data))}, data))
		}, "payload of rank 0", "", fault.Corrupt},
		{"P10", "metadata of version 4", func(f *file) { f.metadata().Set("format_version", int64(4)) }, "format_version: it is 4", "", fault.Unsupported},
		{"P10", "stale metadata", func(f *file) {
			f.metadata().Set("global_step", int64(99))
			f.metadata().Set("codebook", zero)
			f.root.Set("gefen_deterministic", int64(1))
		}, "", "", 0},

		{"P1", "a key less", func(f *file) { f.payloads[1].Delete("mesh") }, "payload of rank 1: the payload lacks mesh", "", fault.Corrupt},
		{"P1", "a key more", func(f *file) { f.payloads[1].Set("note", "x") }, "payload of rank 1: the payload has keys that a loader refuses: note", "", fault.Corrupt},
		{"P2", "another format", func(f *file) { f.payloads[1].Set("format", "x") }, "payload of rank 1.format: it is \"x\"", "", fault.Unsupported},
		{"P3", "another rank's", func(f *file) { f.payloads[1].Set("global_rank", int64(0)) }, "payload of rank 1.global_rank: it is 0, expected 1", "", fault.Corrupt},
		{"P4", "another group rank", func(f *file) { f.payloads[1].Set("group_rank", int64(0)) }, "payload of rank 1.group_rank", "", fault.Corrupt},
		{"P5", "another world", func(f *file) { f.payloads[1].Set("world_size", int64(3)) }, "payload of rank 1.world_size: it is 3, expected 2", "", fault.Corrupt},
		{"P5", "other ranks", func(f *file) { f.payloads[1].Set("world_ranks", pickle.IntList([]int64{0, 2})) }, "payload of rank 1.world_ranks", "", fault.Corrupt},
		{"P5", "another mesh", func(f *file) {
			f.payloads[1].Set("mesh", pickle.NewDict("device_type", "cuda", "shape", pickle.IntList([]int64{2}), "dim_names", pickle.StringList([]string{"dp"}), "ranks", pickle.IntList([]int64{0, 1})))
		}, "payload of rank 1.mesh: device_type is \"cuda\", and the marker says \"cpu\"", "", fault.Corrupt},
		{"P6", "another signature", func(f *file) { f.signature(1, 0).Set("local_dtype", "torch.bfloat16") }, "payload of rank 1.signature: 0.local_dtype is \"torch.bfloat16\"", "", fault.Corrupt},
		{"P6", "a shape as a tuple", func(f *file) { f.signature(1, 0).Set("shape", pickle.IntTuple([]int64{7, 4})) }, "payload of rank 1.signature: 0.shape", "", fault.Corrupt},
		{"P7", "another manifest", func(f *file) { f.payloads[1].Set("parameter_manifest", pickle.NewList()) }, "payload of rank 1.parameter_manifest", "", fault.Corrupt},
		{"P8", "another step", func(f *file) { f.payloads[1].Set("global_step", int64(2)) }, "payload of rank 1.global_step: it is 2, expected 3", "", fault.Corrupt},
		{"P9", "another policy", func(f *file) { f.payloads[1].Set("deterministic", true) }, "payload of rank 1.deterministic: it is True", "", fault.Corrupt},

		{"S1", "states as a tuple", func(f *file) {
			items, _ := pickle.Sequence(first(f.payloads[1], "states"))
			f.payloads[1].Set("states", pickle.NewTuple(items...))
		}, "payload of rank 1.states: it is a tuple", "", fault.Corrupt},
		{"S1", "states of fewer parameters", func(f *file) {
			items, _ := pickle.Sequence(first(f.payloads[1], "states"))
			f.payloads[1].Set("states", pickle.NewList(items[0]))
		}, "states of 1 parameters and signatures of 2", "", fault.Corrupt},
		{"S2", "a state of another parameter", func(f *file) { f.state(1, 0).Set("name", "Embed") }, "embed.name: the state is of \"Embed\"", "", fault.Corrupt},
		{"S8", "index of another type", func(f *file) {
			f.state(1, 1).Set("m_codebook", tensor.FromBytes(tensor.Int8, []int64{1, 1}, []byte{0}))
		}, "gain.m_codebook: it is int8", "", fault.Corrupt},
		{"S16", "no codebook", func(f *file) { f.payloads[1].Set("codebook", nil) }, "payload of rank 1.codebook: there are momentum indices", "", fault.Corrupt},

		{"geometry", "local shape", func(f *file) {
			f.everywhere(1, 0, func(d *pickle.Dict) { d.Set("local_shape", pickle.IntList([]int64{4, 4})) })
		}, "embed.local_shape: it is [4 4], expected [3 4] at place 1 of 2", "", fault.Corrupt},
		{"geometry", "coordinate", func(f *file) {
			f.everywhere(1, 0, func(d *pickle.Dict) { d.Set("coordinate", pickle.IntList([]int64{0})) })
		}, "embed.coordinate: it is [0], and the rank's place in the mesh is [1]", "", fault.Corrupt},
		{"geometry", "identifier", func(f *file) {
			f.everywhere(1, 0, func(d *pickle.Dict) { d.Set("identifier", "group_0_param_1_embed") })
		}, "embed.identifier", "", fault.Corrupt},
		{"geometry", "a placement of FSDP's strided kind", func(f *file) {
			f.everywhere(0, 0, func(d *pickle.Dict) {
				d.Set("placements", pickle.NewList(pickle.NewDict("type", "_StridedShard", "module", checkpoint.PlacementModule, "dim", int64(0), "split_factor", int64(2))))
			})
		}, "it is placed as \"_StridedShard\"", "", fault.Unsupported},
		{"geometry", "two placements", func(f *file) {
			f.everywhere(0, 0, func(d *pickle.Dict) {
				list, _ := pickle.Sequence(first(d, "placements"))
				d.Set("placements", pickle.NewList(list[0], list[0]))
			})
		}, "meshes of several dimensions (HSDP)", "", fault.Unsupported},

		{"W2", "ranks disagree", func(f *file) { f.state(1, 0).Set("step", int64(2)) }, "", "embed: the ranks disagree about its steps: step 3 on rank 0", 0},
		{"W2", "fresh on one rank", func(f *file) {
			f.payloads[1].Set("states", pickle.NewList(pickle.NewDict("name", "embed"), f.state(1, 1)))
		}, "", "no state on rank 1", 0},
		{"W3", "names of another model", func(f *file) {
			f.get("param_groups", "0").(*pickle.Dict).Set("param_names", pickle.StringList([]string{"other"}))
		}, "", "parameter 0 is \"other\" here, and \"embed\" in its signature", 0},
		{"W3", "names of fewer parameters", func(f *file) {
			f.get("param_groups", "0").(*pickle.Dict).Set("param_names", pickle.StringList(nil))
		}, "param_groups.0.param_names", "", fault.Corrupt},
		{"W1", "a step past the optimizer's", func(f *file) { f.state(1, 0).Set("step", int64(9)) }, "", "the parameter has taken 9 steps", 0},
		{"G1", "lr below 0", func(f *file) { f.get("param_groups", "0").(*pickle.Dict).Set("lr", -1.0) }, "param_groups.0.lr: -1", "", fault.Corrupt},
	} {
		t.Run(c.rule+" "+c.name, func(t *testing.T) {
			tested[c.rule] = true
			f := realFile(t)
			f.pack()
			c.change(f)
			f.pack()
			cp := f.read()
			check(t, "fault", cp.Faults, c.says, c.kind)
			if c.says == "" || c.warns != "" { // what is broken may look odd besides
				check(t, "warning", cp.Warnings, c.warns, fault.Corrupt)
			}
		})
	}
	for _, number := range compact.RuleNumbers() {
		if !tested[number] {
			t.Errorf("no case breaks rule %s", number)
		}
	}
}

func first(d *pickle.Dict, key string) pickle.Value { v, _ := d.Get(key); return v }

// check wants a fault with the text, or none for "".
func check(t *testing.T, what string, faults []*fault.Error, says string, kind fault.Kind) {
	t.Helper()
	if says == "" {
		if len(faults) > 0 {
			t.Errorf("a %s: %v", what, faults)
		}
		return
	}
	for _, f := range faults {
		if strings.Contains(f.Item+": "+f.Message, says) {
			if f.Kind != kind || f.Path != "x.pt" {
				t.Errorf("%v is %v in %q", f, f.Kind, f.Path)
			}
			return
		}
	}
	t.Errorf("no %s says %q: %v", what, says, faults)
}

// All faults are gathered, not the first alone.
func TestFaultsAreGathered(t *testing.T) {
	f := realFile(t)
	f.marker().Set("world_ranks", nil)
	f.entry(1).Set("name", "gain")
	f.payloads[0].Set("global_step", int64(1))
	f.state(0, 0).Set("step", 1.0)
	f.payloads[1].Set("codebook", nil)
	f.pack()
	c := f.read()
	for _, says := range []string{"world_ranks", "state.1.name", "payload of rank 0.global_step", "embed.step", "payload of rank 1.codebook"} {
		check(t, "fault", c.Faults, says, fault.Corrupt)
	}
	if len(c.Params) != 2 || len(c.Ranks) != 2 {
		t.Errorf("%d parameters on %d ranks were read", len(c.Params), len(c.Ranks))
	}
}
