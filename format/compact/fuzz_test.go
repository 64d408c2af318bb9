package compact_test

import (
	"os"
	"runtime"
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

// FuzzCompactPayload reads a checkpoint whose first payload is any bytes: typed
// faults, bounded memory, and a model that can be looked at.
func FuzzCompactPayload(f *testing.F) {
	data, err := os.ReadFile("../testdata/checkpoints/containers/deep.pt")
	if err != nil {
		f.Fatal(err)
	}
	v, err := tree.Get(decode(f, data), tree.Keys("run", "train.state", "0", "opt")...)
	if err != nil {
		f.Fatal(err)
	}
	root := v.(*pickle.Dict)
	v, err = tree.Get(root, tree.Keys("state", "0")...)
	if err != nil {
		f.Fatal(err)
	}
	carrier := v.(*pickle.Dict)
	for r := range 2 {
		seed, _ := carrier.Get(layout.PayloadKey(r))
		payload := bytesOf(f, seed)
		f.Add(payload)
		f.Add(payload[:len(payload)/2])
		f.Add(encode(f, decode(f, payload)))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		was, _ := carrier.Get(layout.PayloadKey(0))
		defer carrier.Set(layout.PayloadKey(0), was)
		carrier.Set(layout.PayloadKey(0), tensor.FromBytes(tensor.Uint8, []int64{int64(len(payload))}, payload))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := layout.Read(root)
		if err != nil {
			t.Fatal(err)
		}
		c := &checkpoint.Checkpoint{Path: "x.pt", Root: root}
		compact.Read(c, s)
		runtime.ReadMemStats(&after)
		// All that was allocated is no less than what was live at once; the rest of
		// the real file is in the constant.
		if n, limit := int64(after.TotalAlloc-before.TotalAlloc), int64(64*len(payload)+4<<20); n > limit {
			t.Errorf("a payload of %d bytes took %d of memory, over %d", len(payload), n, limit)
		}
		for _, e := range append(c.Faults, c.Warnings...) {
			if e.Kind == fault.Internal || e.Message == "" {
				t.Errorf("%v is %v", e, e.Kind)
			}
		}
		for i := range c.Params {
			c.StateBytes(i)
			for r := range c.Ranks {
				c.Params[i].Box(&c.Ranks[r].Shards[i])
			}
		}
		if len(c.Faults) > 0 || len(c.Ranks) != 2 {
			return
		}
		again, err := compact.Tree(c, checkpoint.Raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := torchfile.New(again, torchfile.WriteOptions{}); err != nil {
			t.Errorf("it was read without faults and cannot be written: %v", err)
		}
	})
}
