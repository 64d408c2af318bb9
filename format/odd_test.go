package format

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// odd are the real checkpoints that testdata/make_checkpoints.py makes.
const odd = "testdata/checkpoints/"

func TestOddCheckpoints(t *testing.T) {
	for path, want := range map[string]string{
		"permuted-uneven/full.pt":   "compact nested gefen world 2 step 1, 4 parameters under opt; warns: in the order of the coordinates",
		"permuted/full.pt":          "compact nested gefen world 2 step 3, 4 parameters under opt; warns: in the order of the ranks, as PyTorch lays them out",
		"placements/full.pt":        "compact nested gefen world 2 step 3, 4 parameters under opt",
		"partly/raw.pt":             "compact raw gefen world 2 step 3, 4 parameters under optimizer",
		"mixed-muon/raw.pt":         "compact raw muon world 2 step 3, 2 parameters under ",
		"containers/optimizer.bin":  "compact nested gefen world 2 step 3, 2 parameters under ",
		"containers/deep.pt":        "compact raw gefen world 2 step 3, 2 parameters under run|train.state|0|opt",
		"containers/dcp_flat":       "compact flat gefen world 2 step 3, 2 parameters under optimizer",
		"containers/dcp_raw":        "compact raw gefen world 2 step 3, 2 parameters under optimizer",
		"containers/accelerate":     "compact nested gefen world 2 step 3, 2 parameters under optimizer",
		"containers/ranks":          "compact raw gefen world 2 step 3, 2 parameters under optimizer",
		"broken-dense/optimizer.pt": "compact nested gefen world 2 step 3, 4 parameters under ",
		"broken-dense/dcp_dense":    "dense  gefen world 2 step 3, 4 parameters under optimizer; warns: real Gefen-X will refuse this",
		"native/capturable.pt":      "native raw gefen world 0 step 3, 4 parameters under ",
		"native/toggled.pt":         "native raw gefen world 0 step 4, 4 parameters under opt",
		"hybrid/full.pt":            "mixed raw hybrid world 2 step 3, 0 parameters under optimizer; muon: native muon 1; backup: compact gefen 3",
		"hybrid-adamw-1/full.pt":    "native raw hybrid world 0 step 3, 0 parameters under optimizer; muon: native muon 1; backup: native adamw 3",
		"hybrid-adamw-2/rank0.pt":   "native raw hybrid world 0 step 3, 0 parameters under ; muon: native muon 1; backup: native adamw 3; fails: it is a DTensor of [7 4]",
		"hybrid-adamw-2":            "native raw hybrid world 0 step 3, 0 parameters under ; muon: native muon 1; backup: native adamw 3; fails: it is a DTensor of [7 4]",
		"../../../testdata/checkpoints/muon-distributed-2/dcp_payload": "native nested muon world 0 step 4, 6 parameters under optimizer; warns: set_optimizer_state_dict refuses that",
	} {
		t.Run(path, func(t *testing.T) {
			c, err := Open(odd+path, Options{})
			if c == nil {
				t.Fatal(err)
			}
			defer c.Close()
			got := fmt.Sprintf("%s %s %s world %d step %d, %d parameters under %s", c.Form, c.Layout, c.Optimizer, c.World, c.GlobalStep, len(c.Params), strings.Join(c.Key, "|"))
			for _, h := range c.Halves {
				got += fmt.Sprintf("; %s: %s %s %d", h.Name, h.Checkpoint.Form, h.Checkpoint.Optimizer, len(h.Checkpoint.Params))
			}
			got += noted("fails", c.Faults, want) + noted("warns", c.Warnings, want)
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// noted is what faults say, in as many words as want has of it.
func noted(verb string, faults []*fault.Error, want string) string {
	if len(faults) == 0 {
		return ""
	}
	_, says, _ := strings.Cut(want, verb+": ")
	text := faults[0].Message + "; " + faults[0].Hint
	if says != "" && strings.Contains(text, says) && len(faults) == 1 {
		return "; " + verb + ": " + says
	}
	return fmt.Sprintf("; %s: %v", verb, faults)
}

// The dense state of every odd checkpoint is what the optimizer that was saved
// held, whatever placement, mesh and container.
func TestMomentsOfOddCheckpoints(t *testing.T) {
	for _, path := range []string{"permuted/full.pt", "placements/full.pt", "containers/optimizer.bin", "containers/deep.pt",
		"containers/dcp_flat", "containers/dcp_raw", "containers/accelerate", "containers/ranks", "native/capturable.pt"} {
		t.Run(path, func(t *testing.T) {
			c, err := Open(odd+path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			truth := readTorch(t, odd+strings.Split(path, "/")[0]+"/moments.pt")
			for i := range c.Params {
				p := &c.Params[i]
				v, ok := truth.Get(p.Name)
				if !ok {
					t.Fatalf("%s is not in moments.pt", p.Name)
				}
				pair, _ := pickle.Sequence(v)
				m, v2 := gather(t, c, i)
				for j, got := range [][]float32{m, v2} {
					want, err := pair[j].(*tensor.Tensor).Float32s()
					if err != nil {
						t.Fatal(err)
					}
					if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
						t.Errorf("%s: moment %d is %v, want %v", p.Name, j+1, got, want)
					}
				}
			}
		})
	}
}

// gather puts a parameter's shards together by their boxes.
func gather(t *testing.T, c *checkpoint.Checkpoint, p int) (m, v []float32) {
	t.Helper()
	var shape []int64
	for r := range c.Ranks {
		param, s := &c.Params[p], &c.Ranks[r].Shards[p]
		offset, box := param.Box(s)
		if shape == nil {
			shape = param.Shape
			n, _ := tensor.Volume(shape)
			m, v = make([]float32, n), make([]float32, n)
		}
		reader, err := moments.OfShard(c, r, p)
		if err != nil {
			t.Fatal(err)
		}
		local := [2][]float32{make([]float32, reader.Len()), make([]float32, reader.Len())}
		if err := reader.Momentum(local[0], 0); err != nil {
			t.Fatal(err)
		}
		if err := reader.SecondMoment(local[1], 0); err != nil {
			t.Fatal(err)
		}
		if r > 0 && param.Placement.Type != "Shard" {
			continue // a replica
		}
		for i := range local[0] {
			at := place(int64(i), offset, box, shape)
			m[at], v[at] = local[0][i], local[1][i]
		}
	}
	return m, v
}

// place is where element i of a box lies in the whole.
func place(i int64, offset, box, shape []int64) int64 {
	at, step := int64(0), int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		at += (offset[d] + i%box[d]) * step
		i /= box[d]
		step *= shape[d]
	}
	return at
}

func readTorch(t *testing.T, path string) *pickle.Dict {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := torchfile.Open(tensor.Memory(data), torchfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, ok := pickle.AsDict(a.Root())
	if !ok {
		t.Fatalf("%s holds %s", path, tree.Describe(a.Root()))
	}
	return d
}

// Boxes tell the rows of every placement.
func TestBoxesOfPlacements(t *testing.T) {
	c, err := Open(odd+"placements/full.pt", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, want := range []string{"Shard(1) [0 2] [7 2]", "Shard(0) [3 0] [3 8]", "Replicate() [0] [6]", "not sharded [0] [2]"} {
		p := &c.Params[i]
		offset, shape := p.Box(&c.Ranks[1].Shards[i])
		if got := fmt.Sprint(p.Placement, offset, shape); got != want {
			t.Errorf("%s: %s, want %s", p.Name, got, want)
		}
	}
	c2, err := Open(odd+"mixed-muon/raw.pt", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	for i, want := range []string{"[4 0] [3 4]", "[0 0] [6 8]"} {
		offset, shape := c2.Params[i].Box(&c2.Ranks[1].Shards[i])
		if got := fmt.Sprint(offset, shape); got != want {
			t.Errorf("%s in mode %s: %s, want %s", c2.Params[i].Name, c2.Params[i].ShardedMode, got, want)
		}
	}
}

// A native state takes its shapes from the model beside it.
func TestShapesOfTheModel(t *testing.T) {
	c, err := Open(checkpoints+"native-block-1/full.pt", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, p := range c.Params {
		if p.Name == "blocks.0.qkv.weight" {
			if !slices.Equal(p.Shape, []int64{48, 16}) || p.DType != "torch.float32" || p.FQN != "blocks.0.qkv.weight" {
				t.Errorf("%+v", p)
			}
			return
		}
	}
	t.Error("there is no such parameter")
}

// An old full checkpoint of a sharded run holds rank 0's state for all.
func TestStateOfRankZeroForAll(t *testing.T) {
	root := readTorch(t, checkpoints+"native-block-1/full.pt")
	model, err := tree.Get(root, "model")
	if err != nil {
		t.Fatal(err)
	}
	w, err := tree.Get(model, "blocks.0.qkv.weight")
	if err != nil {
		t.Fatal(err)
	}
	whole := *w.(*tensor.Tensor)
	whole.Shape = []int64{96, 16}
	whole.Chunks, whole.Content = nil, blank(4*96*16)
	changed, err := tree.Replace(root, &whole, "model", "blocks.0.qkv.weight")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.pt")
	write(t, path, changed)
	c, err := Open(path, Options{})
	if c == nil || fault.KindOf(err) != fault.Unsupported || !strings.Contains(err.Error(), "kept rank 0's state for all ranks") {
		t.Fatalf("%v", err)
	}
	c.Close()
}

// files writes trees as files of a folder.
func files(t *testing.T, roots map[string]pickle.Value) string {
	t.Helper()
	dir := t.TempDir()
	for name, root := range roots {
		write(t, filepath.Join(dir, name), root)
	}
	return dir
}

func TestFolders(t *testing.T) {
	state := func() *pickle.Dict { return readTorch(t, odd+"containers/ranks/state_rank0.pt") }
	change := func(value pickle.Value, keys ...string) pickle.Value {
		out, err := tree.Replace(state(), value, tree.Keys(keys...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// own has only the payload of one rank.
	own := func(rank int) pickle.Value {
		d := state()
		carrier, err := tree.Get(d, tree.Keys("optimizer", "state", "0")...)
		if err != nil {
			t.Fatal(err)
		}
		carrier.(*pickle.Dict).Delete(layout.PayloadKey(1 - rank))
		return d
	}
	payload, err := tree.Get(state(), tree.Keys("optimizer", "state", "0", layout.PayloadKey(1))...)
	if err != nil {
		t.Fatal(err)
	}
	model := pickle.NewDict("w", tensor.FromInt64(3))
	muon := func() pickle.Value { return readTorch(t, checkpoints+"muon-exact-2/raw.pt") }
	for name, c := range map[string]struct {
		files map[string]pickle.Value
		says  string // in the error; "" for none
		kind  fault.Kind
		ranks int
	}{
		"each with its own payload": {map[string]pickle.Value{"r0.pt": own(0), "r1.pt": own(1)}, "", 0, 2},
		"all payloads in each":      {map[string]pickle.Value{"r0.pt": state(), "r1.pt": state()}, "", 0, 2},
		"beside a model":            {map[string]pickle.Value{"optimizer.pt": state(), "pytorch_model.bin": model, "scheduler.pt": pickle.NewDict("base_lrs", nil)}, "", 0, 2},
		"a rank's file is missing":  {map[string]pickle.Value{"r0.pt": own(0)}, "payloads are missing: of rank 1", fault.Incomplete, 1},
		"a payload differs":         {map[string]pickle.Value{"r0.pt": state(), "r1.pt": change(payload, "optimizer", "state", "0", layout.PayloadKey(0))}, "it holds another state than r0.pt", fault.Corrupt, 2},
		"options differ":            {map[string]pickle.Value{"r0.pt": state(), "r1.pt": change(0.5, "optimizer", "param_groups", "0", "lr")}, "it holds another state than r0.pt", fault.Corrupt, 2},
		"another rng state is fine": {map[string]pickle.Value{"r0.pt": state(), "r1.pt": change(int64(7), "rng")}, "", 0, 2},
		"equal global states":       {map[string]pickle.Value{"r0.pt": muon(), "r1.pt": muon()}, "", 0, 1},
		"two checkpoints":           {map[string]pickle.Value{"a.pt": state(), "b.pt": muon()}, "the folder holds 2 checkpoints: a.pt, b.pt", fault.Usage, -1},
		"no optimizer":              {map[string]pickle.Value{"a.pt": model, "b.pt": model}, "nothing in this folder holds an optimizer", fault.Unsupported, -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, c.files)
			cp, err := Open(dir, Options{})
			switch {
			case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || fault.KindOf(err) != c.kind):
				t.Errorf("%v; want %q", err, c.says)
			}
			if (cp == nil) != (c.ranks < 0) {
				t.Fatalf("%v", cp)
			}
			if cp != nil {
				if len(cp.Ranks) != c.ranks {
					t.Errorf("%d ranks, want %d", len(cp.Ranks), c.ranks)
				}
				if err := cp.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestKeys(t *testing.T) {
	state := func() pickle.Value {
		return must(tree.Get(readTorch(t, odd+"containers/ranks/state_rank0.pt"), "optimizer"))
	}
	adam := pickle.NewDict("state", pickle.NewDict(int64(0), pickle.NewDict("exp_avg_sq", tensor.FromInt64(1))),
		"param_groups", pickle.NewList(pickle.NewDict("lr", 0.1, "params", pickle.NewList(int64(0)))))
	shared := state()
	for name, c := range map[string]struct {
		root pickle.Value
		key  string
		want string // the key that is found, or what the error says
		kind fault.Kind
	}{
		"found":                 {pickle.NewDict("a", pickle.NewDict("b", state())), "", "a|b", 0},
		"in a list":             {pickle.NewDict("optimizer_states", pickle.NewList(state())), "", "optimizer_states|0", 0},
		"under a number":        {pickle.NewDict(int64(3), state()), "", "3", 0},
		"beside another's":      {pickle.NewDict("a", adam, "b", state()), "", "b", 0},
		"one object twice":      {pickle.NewDict("a", shared, "b", shared), "", "a", 0},
		"chosen":                {pickle.NewDict("a", state(), "b", state()), "b", "b", 0},
		"chosen by a prefix":    {pickle.NewDict("a", pickle.NewDict("x", state()), "b", state()), "a", "a|x", 0},
		"a key with dots":       {pickle.NewDict("a.b", pickle.NewDict("c", state()), "a", adam), "a.b.c", "a.b|c", 0},
		"two":                   {pickle.NewDict("a", state(), "b", state()), "", "2 optimizers, under a, b", fault.Usage},
		"a key that is not":     {pickle.NewDict("a", state()), "b", "a dict of 1 has no \"b\"", fault.Usage},
		"a key of another":      {pickle.NewDict("a", adam, "b", state()), "a", "Adam or AdamW", fault.Unsupported},
		"a key of no optimizer": {pickle.NewDict("a", pickle.NewDict("w", tensor.FromInt64(1)), "b", state()), "a", "a model's state dict", fault.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.pt")
			write(t, path, c.root)
			cp, err := Open(path, Options{Key: c.key})
			if c.kind != 0 {
				if cp != nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v; want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer cp.Close()
			if got := strings.Join(cp.Key, "|"); got != c.want || len(cp.Params) != 2 {
				t.Errorf("%q, want %q", got, c.want)
			}
			if _, err := tree.Get(cp.Root, tree.Keys(cp.Key...)...); err != nil {
				t.Error(err)
			}
		})
	}
}

func must(v pickle.Value, err error) pickle.Value {
	if err != nil {
		panic(err)
	}
	return v
}

// What stands beside the optimizer is listed with its size.
func TestBeside(t *testing.T) {
	c, err := Open(checkpoints+"plain-2/full.pt", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := c.Beside()
	want := []checkpoint.Entry{{Path: "model", Kind: "dict of 27 entries, 27 of them tensors", Tensors: 27, Bytes: 0}, {Path: "epoch", Kind: "int64 3"}}
	if len(got) != 2 || got[1] != want[1] || got[0].Path != "model" || got[0].Tensors == 0 || got[0].Bytes < 4*int64(got[0].Tensors) {
		t.Errorf("%+v", got)
	}
}

// blank is a content of so many zero bytes.
type blank int64

func (b blank) Size() int64 { return int64(b) }

func (b blank) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(make([]byte, b))
	return int64(n), err
}
