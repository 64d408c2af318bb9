package broken

import (
	"math"
	"os"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
)

// Where things are in the sound checkpoint.
var (
	carrier  = []pickle.Value{"optimizer", "state", "embed.weight"}
	metadata = []pickle.Value{"_gefen_checkpoint_metadata"}
	marker   = append(metadata[:1:1], "rank_local_sharded_state")
)

const payload1 = "_gefen_rank_local_payload_1"

// outer is a case with one value outside the payloads made another.
func outer(name, what string, exit int, text string, edit func(pickle.Value) pickle.Value, path ...pickle.Value) Case {
	return Case{name, what, exit, text, func(s *Sound, file string) error {
		data, err := edited(s.Compact, edit, path...)
		if err != nil {
			return err
		}
		return os.WriteFile(file, data, 0o666)
	}}
}

// marked is a case with one value in every group's marker, or metadata, made
// another.
func marked(name, what string, exit int, text string, edit func(pickle.Value) pickle.Value, path ...pickle.Value) Case {
	return outer(name, what, exit, text, func(old pickle.Value) pickle.Value {
		out := &pickle.List{}
		items, _ := pickle.Sequence(old)
		for _, group := range items {
			group, err := replaced(group, edit, path...)
			if err != nil {
				panic(err)
			}
			out.Items = append(out.Items, group)
		}
		return out
	}, "optimizer", "param_groups")
}

// inner is a case with one value in the payload of rank 1 made another.
func inner(name, what string, exit int, text string, edit func(pickle.Value) pickle.Value, path ...pickle.Value) Case {
	return outer(name, what, exit, text, func(old pickle.Value) pickle.Value {
		data, err := old.(*tensor.Tensor).ReadAll()
		if err == nil {
			data, err = edited(data, edit, path...)
		}
		if err != nil {
			panic(err)
		}
		return tensor.FromBytes(tensor.Uint8, []int64{int64(len(data))}, data)
	}, append(carrier[:3:3], payload1)...)
}

// ofRank0 is the payload of rank 0 in the place of another's.
func ofRank0(s *Sound, file string) error {
	a, err := torchfile.Open(tensor.Memory(s.Compact), torchfile.Options{})
	if err != nil {
		return err
	}
	root, err := replaced(a.Root(), func(old pickle.Value) pickle.Value {
		d, _ := pickle.AsDict(old)
		first, _ := d.Get("_gefen_rank_local_payload_0")
		return with(payload1, first)(old)
	}, carrier...)
	if err != nil {
		return err
	}
	data, err := archive(root)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o666)
}

var (
	nan   = float32(math.NaN())
	state = func(key string) []pickle.Value { return []pickle.Value{"states", int64(0), key} }
)

// states are broken in what a loader of Gefen looks at.
var states = []Case{
	outer("rank-missing.pt", "the payload of rank 1 is missing", 3, "state.embed.weight: payloads are missing: of rank 1; the checkpoint has 2 ranks", without(payload1), carrier...),
	{"rank-twice.pt", "rank 0's payload stands in the place of rank 1's", 4, "payload of rank 1.global_rank: it is 0, expected 1", ofRank0},
	outer("payload-type.pt", "a payload is a string", 4, "expected a uint8 tensor of one dimension", to("gone"), append(carrier[:3:3], payload1)...),
	outer("payload-cut.pt", "a payload lacks its second half", 4, "payload of rank 1: at byte 2755: no zip end record in the last 2755 of 2755 byte", func(old pickle.Value) pickle.Value {
		data, err := old.(*tensor.Tensor).ReadAll()
		if err != nil {
			panic(err)
		}
		return tensor.FromBytes(tensor.Uint8, []int64{int64(len(data) / 2)}, data[:len(data)/2])
	}, append(carrier[:3:3], payload1)...),
	marked("world.pt", "the marker speaks of three ranks", 4, "rank-local marker.world_ranks: it is [0 1], expected 0 to 2 in order", to(int64(3)), append(marker[:2:2], "world_size")...),
	marked("marker-format.pt", "the marker has an unknown format", 5, "rank-local marker.format: it is", to("rank_local_dtensor_v9"), append(marker[:2:2], "format")...),
	marked("version.pt", "the metadata has version 9", 5, "param_groups.0._gefen_checkpoint_metadata.format_version: it is 9, expected 1, 2", to(int64(9)), append(metadata[:1:1], "format_version")...),
	marked("hsdp.pt", "the mesh has two dimensions, as HSDP has it", 5, "rank-local marker.mesh: the mesh has 2 dimensions, [1 2]: hybrid sharding (HSDP)", to(pickle.IntList([]int64{1, 2})), append(marker[:2:2], "mesh", "shape")...),
	outer("group-lost.pt", "the second group is missing", 4, "payload of rank 0: the signature has 3 parameters, and the groups have 2", func(old pickle.Value) pickle.Value {
		items, _ := pickle.Sequence(old)
		return pickle.NewList(items[:1]...)
	}, "optimizer", "param_groups"),
	outer("beta.pt", "beta1 is 2", 4, "param_groups.0.beta1: 2, expected a number within [0, 1)", to(2.0), "optimizer", "param_groups", int64(0), "beta1"),
	inner("step-mixed.pt", "rank 1 is at another step than rank 0", 0, "embed.weight: the ranks disagree about its steps: step 7 on rank 0 (1 ranks in a", to(int64(6)), state("step")...),
	inner("global-step.pt", "rank 1 is at another global step", 4, "payload of rank 1.global_step: it is 6, expected 7", to(int64(6)), "global_step"),
	inner("step-negative.pt", "a step below zero", 4, "payload of rank 1: embed.weight.step: the counter is -1, expected at least 0", to(int64(-1)), state("step")...),
	inner("format.pt", "a payload of an unknown format", 5, "payload of rank 1.format: it is", to("rank_local_dtensor_v9"), "format"),
	inner("extra-key.pt", "a payload with a key that no loader knows", 4, "payload of rank 1: the payload has keys that a loader refuses: note", with("note", "hello"), []pickle.Value{}...),
	inner("key-missing.pt", "a payload without its codebook key", 4, "payload of rank 1: the payload lacks codebook", without("codebook"), []pickle.Value{}...),
	inner("codebook-none.pt", "a payload whose codebook is None", 4, "payload of rank 1.codebook: there are momentum indices, and no codebook", to(nil), "codebook"),
	inner("codebook-short.pt", "a codebook of 255 words", 4, "payload of rank 1.codebook: the codebook is float32 [255], expected float32 [256", func(old pickle.Value) pickle.Value {
		x, _ := old.(*tensor.Tensor).Float32s()
		return tensor.FromFloat32s([]int64{255}, x[:255])
	}, "codebook"),
	inner("codebook-nan.pt", "a codebook with a NaN", 4, "payload of rank 1.codebook: codeword 9 is NaN after -0.7158627, expected them in", floats(func(x []float32) { x[9] = nan }), "codebook"),
	inner("codebook-order.pt", "a codebook out of order", 4, "payload of rank 1.codebook: codeword 10 is -0.66029423 after 0.37449825, expecte", floats(func(x []float32) { x[9], x[200] = x[200], x[9] }), "codebook"),
	inner("magnitude-nan.pt", "a magnitude that is NaN", 4, "rank 1: embed.weight.m_magnitude: element 0 is NaN, and 0 more are like it: expe", floats(func(x []float32) { x[0] = nan }), state("m_magnitude")...),
	inner("magnitude-negative.pt", "a magnitude below zero", 4, "rank 1: embed.weight.m_magnitude: element 0 is -1, and 0 more are like it: expec", floats(func(x []float32) { x[0] = -1 }), state("m_magnitude")...),
	inner("vmean-negative.pt", "a second moment below zero", 4, "rank 1: embed.weight.vmean: element 0 is -1, and 0 more are like it: expected fi", floats(func(x []float32) { x[0] = -1 }), state("vmean")...),
	inner("vmean-infinite.pt", "a second moment that is infinite", 4, "rank 1: embed.weight.vmean: element 0 is +Inf, and 0 more are like it: expected", floats(func(x []float32) { x[0] = float32(math.Inf(1)) }), state("vmean")...),
	inner("magnitude-type.pt", "magnitudes of bfloat16, as a cast of the whole state leaves them", 4, "payload of rank 1: embed.weight.m_magnitude: it is bfloat16 [6 1], expected floa", func(old pickle.Value) pickle.Value {
		t := old.(*tensor.Tensor)
		return tensor.FromBytes(tensor.BFloat16, t.Shape, make([]byte, 2*t.Len()))
	}, state("m_magnitude")...),
	inner("period.pt", "a block length that does not divide the shard", 4, "payload of rank 1: embed.weight.automatic_period: the period is 5, which does no", to(int64(5)), state("automatic_period")...),
	inner("index-short.pt", "indices of one block too few", 4, "payload of rank 1: embed.weight.m_codebook: it is uint8 [5 4], expected uint8 [6", func(old pickle.Value) pickle.Value {
		t := old.(*tensor.Tensor)
		data, _ := t.ReadAll()
		shape := []int64{t.Shape[0] - 1, t.Shape[1]}
		return tensor.FromBytes(tensor.Uint8, shape, data[:shape[0]*shape[1]])
	}, state("m_codebook")...),
	inner("state-missing.pt", "a rank without the state of a parameter", 4, "payload of rank 1: there are states of 2 parameters and signatures of 3", func(old pickle.Value) pickle.Value {
		items, _ := pickle.Sequence(old)
		return pickle.NewList(items[:2]...)
	}, "states"),
	inner("shape.pt", "a local shape that is not the rank's", 4, "payload of rank 1.signature: 0.local_shape is [2 8], and the marker says [3 8]", to(pickle.IntList([]int64{2, 8})), "signature", int64(0), "local_shape"),
}
