package convert

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/pickle"
	"gefenckpt/internal/gen"
)

// Blocks that a reshard cut have the magnitude of the block that they were of,
// which may be no element's. The dense state is recovered all the same.
func TestRecoverAfterAReshard(t *testing.T) {
	for _, c := range []struct {
		name  string
		world int
	}{{"plain-2", 4}, {"plain-2", 3}, {"plain-4", 2}, {"uneven-3", 5}, {"fsdp-2", 3}} {
		for _, f := range []Fidelity{Lossless, Balanced} {
			_, _, path := resharded(t, checkpoints+c.name+"/full.pt", c.world, f)
			a := open(t, toDense(t, path))
			b, found, err := dense.Recover(context.Background(), a, 2)
			if err != nil {
				t.Fatal(err)
			}
			if found.Explained == 0 || found.Explained == found.Elements && found.Short == 0 {
				t.Errorf("%s to %d, %s: %+v; some blocks were to be whole and others not", c.name, c.world, f, found)
			}
			for p := range a.Params {
				compareMoments(t, a, b, p)
			}
		}
	}
}

// Gefen-X's own dense directory, on the ranks that wrote it, has its dense state
// back without error, and on others the reference fidelity gives what Gefen-X made
// of it.
func TestDenseToCompact(t *testing.T) {
	for name, worlds := range map[string][]int{"plain-2": {1, 3, 4}, "plain-4": {1, 2}, "uneven-3": {2, 5}, "bf16-2": {4}, "fsdp-2": {3, 4}} {
		src := checkpoints + name + "/dcp_dense"
		a := open(t, src)
		dst, r := convert(t, src, "back.pt", Options{To: checkpoint.Compact, DeviceType: "cpu", MeshDimNames: []string{"dp"}})
		b := open(t, dst)
		if b.World != a.World || r.Recovered == nil || r.Recovered.Explained != r.Recovered.Elements || len(r.Warnings) > 0 {
			t.Errorf("%s: %d ranks, recovered %+v, %v", name, b.World, r.Recovered, r.Warnings)
		}
		for p := range a.Params {
			compareMoments(t, a, b, p)
		}
		// But for the payloads' states, the checkpoint is the one that was expanded.
		want := leaves(t, open(t, checkpoints+name+"/full.pt").Root)
		for path, v := range leaves(t, b.Root) {
			if !strings.Contains(path, "payload") && !strings.HasPrefix(path, "epoch") && !pickle.Equal(want[path], v) {
				t.Errorf("%s: %s is %v, expected %v", name, path, v, want[path])
			}
		}
		for _, world := range worlds {
			dst := filepath.Join(t.TempDir(), "reference.pt")
			o := Options{To: checkpoint.Compact, World: world, Fidelity: Reference, DeviceType: "cpu", MeshDimNames: []string{"dp"}}
			if _, err := Run(context.Background(), src, dst, o); err != nil {
				t.Fatal(err)
			}
			sameStates(t, fmt.Sprintf("%s on %d", name, world), open(t, dst), open(t, checkpoints+name+"/reshard_"+strconv.Itoa(world)+"/full.pt"))
		}
	}
}

// Any dense state whatever can be held in ranks' blocks, exactly.
func TestRecoverKeepsEveryElement(t *testing.T) {
	for seed := range uint64(60) {
		a := open(t, toDense(t, generated(t, gen.Random(seed))))
		b, _, err := dense.Recover(context.Background(), a, 2)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for r := range b.Ranks {
			b.CheckCodebook(&b.Ranks[r], "codebook")
			for p := range b.Params {
				b.CheckState(&b.Params[p], &b.Ranks[r].Shards[p], b.Params[p].Name)
			}
		}
		if len(b.Faults) > 0 {
			t.Fatalf("seed %d: %v", seed, b.Faults)
		}
		for p := range a.Params {
			compareMoments(t, a, b, p)
		}
	}
}
