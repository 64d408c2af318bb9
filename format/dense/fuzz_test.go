package dense_test

import (
	"bytes"
	"runtime"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/fault"
)

// FuzzDense reads any tree as a dense state, and what it remembers.
func FuzzDense(f *testing.F) {
	add := func(v pickle.Value) {
		file, err := torchfile.New(v, torchfile.WriteOptions{})
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := file.WriteTo(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	add(slots(1, counters{1, 5, 5}, counters{1, 0, 5}))
	add(slots(0, counters{0, 0, 0}))
	remembers := slots(1, counters{1, 5, 5})
	numbers := tensor.FromBytes(tensor.Int64, []int64{1, 1}, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	remembers.Set(dense.KeyOrigin, pickle.NewDict("version", int64(1),
		"description", pickle.NewTuple(pickle.NewDict("mesh", pickle.NewDict("device_type", "cpu", "dim_names", pickle.NewList(), "ranks", pickle.NewList(int64(0))),
			"rows_by", "rank", "params", pickle.NewList(pickle.NewDict("fqn", "a")), "groups", pickle.NewList(pickle.NewDict("lr", 0.1)))),
		"codebooks", tensor.FromFloat32s([]int64{1, 256}, make([]float32, 256)), "periods", numbers, "steps", numbers, "vmean_steps", numbers,
		"stored_indices", tensor.FromBytes(tensor.Uint8, []int64{1, 1}, []byte{0}), "slot_00000000.magnitude", tensor.FromFloat32s([]int64{2}, []float32{1, 2})))
	add(remembers)
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a, err := torchfile.Open(tensor.Memory(data), torchfile.Options{})
		if err != nil {
			return
		}
		d, ok := pickle.AsDict(a.Root())
		if !ok || !dense.Is(d) {
			return
		}
		c := &checkpoint.Checkpoint{Path: "x", Root: d}
		dense.Read(c, d)
		var back *checkpoint.Checkpoint
		if len(c.Faults) == 0 && c.Origin != nil {
			if back, err = dense.Restore(c); err != nil && fault.KindOf(err) == fault.Internal {
				t.Error(err)
			}
		}
		runtime.ReadMemStats(&after)
		if n, limit := int64(after.TotalAlloc-before.TotalAlloc), int64(64*len(data)+4<<20); n > limit {
			t.Errorf("%d bytes took %d of memory, over %d", len(data), n, limit)
		}
		for _, e := range append(c.Faults, c.Warnings...) {
			if e.Kind == fault.Internal || e.Message == "" {
				t.Errorf("%v is %v", e, e.Kind)
			}
		}
		if back == nil {
			return
		}
		for r := range back.Ranks {
			for _, s := range back.Ranks[r].Shards {
				if s.State == nil {
					continue
				}
				for _, plane := range s.State.Tensors() {
					if plane.Bytes() < 1<<16 {
						if _, err := plane.ReadAll(); err != nil && fault.KindOf(err) == fault.Internal {
							t.Error(err)
						}
					}
				}
			}
		}
	})
}
