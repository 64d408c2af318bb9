package native

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/layout"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/fault"
)

// FuzzNative reads any archive as a native state, and as AdamW's.
func FuzzNative(f *testing.F) {
	for _, pattern := range []string{"../testdata/checkpoints/native/*.pt", "../testdata/checkpoints/mixed-muon/*.pt", "../../testdata/checkpoints/muon-distributed-2/raw.pt"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatal("no seeds", err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fill := range []func(*checkpoint.Checkpoint, *layout.State){Read, ReadAdamW} {
			c := &checkpoint.Checkpoint{Path: "x.pt"}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			a, err := torchfile.Open(tensor.Memory(data), torchfile.Options{})
			if err != nil {
				return
			}
			d, ok := pickle.AsDict(a.Root())
			if !ok || !layout.Is(d) {
				return
			}
			s, err := layout.Read(d)
			if err != nil {
				if fault.KindOf(err) == fault.Internal {
					t.Error(err)
				}
				return
			}
			fill(c, s)
			runtime.ReadMemStats(&after)
			if n, limit := int64(after.TotalAlloc-before.TotalAlloc), int64(64*len(data)+4<<20); n > limit {
				t.Errorf("%d bytes took %d of memory, over %d", len(data), n, limit)
			}
			for _, e := range append(c.Faults, c.Warnings...) {
				if e.Kind == fault.Internal || e.Message == "" {
					t.Errorf("%v is %v", e, e.Kind)
				}
			}
			if len(c.Faults) > 0 || c.Optimizer == checkpoint.AdamW {
				continue
			}
			if _, err := torchfile.New(Tree(c, checkpoint.Raw), torchfile.WriteOptions{}); err != nil {
				t.Errorf("it was read without faults and cannot be written: %v", err)
			}
		}
	})
}
