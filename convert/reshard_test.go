package convert

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/gen"
)

// generated writes the checkpoint of a specification to a file.
func generated(t *testing.T, s gen.Spec) string {
	t.Helper()
	state, err := compact.Tree(gen.Compact(s), checkpoint.Nested, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.New(pickle.NewDict("optimizer", state, "epoch", int64(3)), torchfile.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "generated.pt")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// resharded runs a reshard and opens what it wrote.
func resharded(t *testing.T, src string, world int, f Fidelity) (*checkpoint.Checkpoint, *Result, string) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "out.pt")
	r, err := Run(context.Background(), src, dst, Options{To: checkpoint.Compact, World: world, Fidelity: f, MaxGrowth: 0.05, Jobs: 2})
	if err != nil {
		t.Fatalf("%s to %d: %v", src, world, err)
	}
	return open(t, dst), r, dst
}

// Every element of the source is in the target once, bit for bit, for random
// topologies: what is read back, row by row, is what the source means.
func TestLosslessReshardsKeepEveryElement(t *testing.T) {
	for seed := range uint64(60) {
		spec := gen.Random(seed)
		src := generated(t, spec)
		a := open(t, src)
		for _, world := range []int{1 + int(seed)%7, spec.World * 2} {
			b, r, _ := resharded(t, src, world, Lossless)
			if b.World != world || r.MomentumRelL2 != 0 || r.SecondMomentRelL2 != 0 {
				t.Errorf("seed %d: %d ranks, errors %v and %v", seed, b.World, r.MomentumRelL2, r.SecondMomentRelL2)
			}
			for p := range a.Params {
				compareMoments(t, a, b, p)
			}
		}
	}
}

// The errors that a balanced plan predicts are those of the file.
func TestPredictedErrorsAreMeasured(t *testing.T) {
	for _, c := range []struct {
		name  string
		world int
	}{{"plain-4", 2}, {"plain-2", 3}, {"uneven-3", 2}, {"fsdp-2", 3}} {
		src := checkpoints + c.name + "/full.pt"
		b, r, _ := resharded(t, src, c.world, Balanced)
		m, v := errorsBetween(t, open(t, src), b)
		for _, x := range []struct {
			what                string
			predicted, measured float64
		}{{"momentum", r.MomentumRelL2, m}, {"second moment", r.SecondMomentRelL2, v}} {
			if d := x.predicted - x.measured; d > 0.01*x.measured || d < -0.01*x.measured {
				t.Errorf("%s to %d: %s error predicted %v, measured %v", c.name, c.world, x.what, x.predicted, x.measured)
			}
		}
		if growth := r.BytesPerParameter.Target / r.BytesPerParameter.Source; growth > 1.05 {
			t.Errorf("%s to %d: %.3f times the source's bytes", c.name, c.world, growth)
		}
	}
}

// errorsBetween are the relative L2 errors of b's moments against a's.
func errorsBetween(t *testing.T, a, b *checkpoint.Checkpoint) (momentum, second float64) {
	t.Helper()
	var sums [2][2]float64
	for p := range a.Params {
		x, err := moments.OfParameter(a, p)
		if err != nil {
			t.Fatal(err)
		}
		y, err := moments.OfParameter(b, p)
		if err != nil {
			t.Fatal(err)
		}
		for k, read := range []func(moments.Reader, []float32, int64) error{moments.Reader.Momentum, moments.Reader.SecondMoment} {
			want, got := make([]float32, x.Len()), make([]float32, x.Len())
			if err := read(x, want, 0); err != nil {
				t.Fatal(err)
			}
			if err := read(y, got, 0); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				d := float64(got[i]) - float64(want[i])
				sums[k][0] += d * d
				sums[k][1] += float64(want[i]) * float64(want[i])
			}
		}
	}
	return relL2(sums[0]), relL2(sums[1])
}

// The reference fidelity is what GefenDCPState held after loading on as many
// ranks, in every period, codeword, index, magnitude and second moment.
func TestReferenceIsGefenX(t *testing.T) {
	for name, worlds := range map[string][]int{"plain-2": {1, 3, 4}, "plain-4": {1, 2}, "uneven-3": {2, 5}, "bf16-2": {4}, "fsdp-2": {3, 4}} {
		for _, world := range worlds {
			got, _, _ := resharded(t, checkpoints+name+"/full.pt", world, Reference)
			want := open(t, checkpoints+name+"/reshard_"+strconv.Itoa(world)+"/full.pt")
			sameStates(t, name, got, want)
		}
	}
}

// A split that is joined again is the source, in every byte of its state.
func TestSplitAndJoinedIsTheSource(t *testing.T) {
	spec := gen.Spec{Seed: 5, World: 2, Step: 7, Groups: [][]gen.Param{
		{{Name: "w", Shape: []int64{64, 16}, Period: 128}, {Name: "v", Shape: []int64{32, 24}, Period: 96}}, {{Name: "b", Shape: []int64{64}, Period: 16}}}}
	src := generated(t, spec)
	a := open(t, src)
	_, _, split := resharded(t, src, 4, Lossless)
	b, _, _ := resharded(t, split, 2, Lossless)
	sameStates(t, "joined", b, a)
}

// A dense directory of our own leads back to the compact checkpoint, byte by byte.
func TestDenseAndBackIsTheSource(t *testing.T) {
	for _, name := range []string{"plain-2", "uneven-3", "bf16-2"} {
		a := open(t, checkpoints+name+"/full.pt")
		dst, _ := convert(t, toDense(t, checkpoints+name+"/full.pt"), "back.pt", Options{To: checkpoint.Compact})
		b := open(t, dst)
		sameStates(t, name, b, a)
	}
}
