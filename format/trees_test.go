package format

import (
	"path/filepath"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
)

// exact makes a tree comparable with pickle.Equal, in the order of its keys too:
// dicts become lists of pairs, tensors their type, shape and bytes, payloads what
// is in them.
func exact(t *testing.T, v pickle.Value) pickle.Value {
	t.Helper()
	v, err := tree.Resolve(v)
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := pickle.AsDict(v); ok {
		out := &pickle.List{}
		for _, p := range d.Pairs {
			out.Items = append(out.Items, pickle.NewTuple(p.Key, exact(t, p.Value)))
		}
		return pickle.NewTuple("dict", out)
	}
	all := func(items []pickle.Value) []pickle.Value {
		out := make([]pickle.Value, len(items))
		for i, item := range items {
			out[i] = exact(t, item)
		}
		return out
	}
	switch v := v.(type) {
	case *pickle.List:
		return pickle.NewList(all(v.Items)...)
	case *pickle.Tuple:
		return pickle.NewTuple(all(v.Items)...)
	case *tensor.Tensor:
		if v.DType == tensor.Uint8 && len(v.Shape) == 1 && v.Len() > 100 { // a payload
			a, err := torchfile.Open(v.AsStorage(), torchfile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return pickle.NewTuple("payload", exact(t, a.Root()))
		}
		data, err := v.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return pickle.NewTuple("tensor", v.DType.String(), pickle.IntTuple(v.Shape), pickle.Bytes(data))
	}
	return v
}

// What is built from a checkpoint that was read is what the file holds, in every
// value, type, key order and byte.
func TestTreesAreTheFiles(t *testing.T) {
	files, err := filepath.Glob(checkpoints + "*/*.pt")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{checkpoints + "*/reshard_*/full.pt", odd + "*/*.pt", odd + "containers/optimizer.bin"} {
		more, _ := filepath.Glob(pattern)
		files = append(files, more...)
	}
	// Where the tree is another for a reason.
	skip := map[string]bool{
		"native/toggled.pt":          true, // the second moments stand in the order of their making
		"native/capturable.pt":       true, // counters become integers
		"hybrid-adamw-2/rank0.pt":    true, // DTensors are not read
		"hybrid-adamw-2/rank1.pt":    true,
		"muon-distributed-2/full.pt": true, // see TestOwnersFollowTheLayout
	}
	built := 0
	for _, file := range files {
		name := strings.TrimPrefix(strings.TrimPrefix(file, checkpoints), odd)
		c, err := Open(file, Options{})
		if c == nil || skip[name] {
			continue
		}
		built++
		t.Run(name, func(t *testing.T) {
			defer c.Close()
			if err != nil {
				t.Fatal(err)
			}
			state, err := Tree(c, c.Layout)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "x.pt")
			write(t, path, state)
			again, err := Open(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			want, err := tree.Get(c.Root, tree.Keys(c.Key...)...)
			if err != nil {
				t.Fatal(err)
			}
			got := exact(t, again.Root)
			if want := exact(t, want); !pickle.Equal(got, want) {
				diff, _ := tree.Difference(got, want)
				a, _ := tree.Get(got, diff...)
				b, _ := tree.Get(want, diff...)
				t.Errorf("at %s the tree has %s, and the file %s", diff, tree.Describe(a), tree.Describe(b))
			}
		})
	}
	if built < 50 {
		t.Errorf("%d checkpoints were built", built)
	}
}

// The manifest of GefenMuon's distributed mode goes by the parameters' ids, which
// are names or numbers as the layout has it: get_optimizer_state_dict forgets to
// rename them.
func TestOwnersFollowTheLayout(t *testing.T) {
	for _, file := range []string{"full.pt", "raw.pt"} {
		c, err := Open(checkpoints+"muon-distributed-2/"+file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if named := file == "full.pt"; (len(c.Warnings) > 0) != named {
			t.Errorf("%s: %v", file, c.Warnings)
		}
		for i := range c.Params { // a raw file has no outer names
			c.Params[i].FQN = c.Params[i].Name
		}
		for _, layout := range []checkpoint.Layout{checkpoint.Raw, checkpoint.Nested} {
			state, err := Tree(c, layout)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := tree.Get(state, "param_groups", int64(0), "params")
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range ids.(*pickle.List).Items {
				for _, manifest := range []tree.Path{{"param_groups", int64(0), "_gefen_checkpoint_metadata", "muon_distributed_state"}, {"gefen_muon_distributed"}} {
					if layout == checkpoint.Nested && len(manifest) == 1 {
						continue // dropped, as get_optimizer_state_dict does
					}
					got, err := tree.Get(state, append(manifest, "groups", int64(0), "params", int64(i), "saved_id")...)
					if err != nil || got != want {
						t.Errorf("%s as %s: parameter %d is %v in the manifest, %v; want %v", file, layout, i, got, err, want)
					}
				}
			}
			path := filepath.Join(t.TempDir(), "x.pt")
			write(t, path, state)
			again, err := Open(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(again.Warnings) > 0 {
				t.Errorf("%v", again.Warnings)
			}
			again.Close()
		}
	}
}
