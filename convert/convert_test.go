package convert

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gefenckpt/format"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

const checkpoints = "../testdata/checkpoints/"

func open(t *testing.T, path string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := format.Open(path, format.Options{})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// convert runs a conversion into a temporary folder and returns its path.
func convert(t *testing.T, src, name string, o Options) (string, *Result) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), name)
	o.Fidelity, o.MaxGrowth, o.MaxMemory = Balanced, 0.05, 256<<20
	r, err := Run(context.Background(), src, dst, o)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return dst, r
}

func toDense(t *testing.T, src string) string {
	t.Helper()
	dst, _ := convert(t, src, "dense", Options{To: checkpoint.Dense, Jobs: 2})
	return dst
}

// leaves are the values of a tree by their dotted path; tensors as their type,
// shape and bytes.
func leaves(t *testing.T, root pickle.Value) map[string]pickle.Value {
	t.Helper()
	out := map[string]pickle.Value{}
	tree.Walk(root, func(path tree.Path, v pickle.Value) bool {
		v, err := tree.Resolve(v)
		if err != nil {
			t.Fatal(err)
		}
		if x, ok := v.(*tensor.Tensor); ok {
			data, err := x.ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			v = pickle.NewTuple(x.DType.String(), pickle.IntTuple(x.Shape), pickle.Bytes(data))
		}
		_, isDict := pickle.AsDict(v)
		if _, isList := v.(*pickle.List); !isDict && !isList {
			out[path.String()] = v
		}
		return true
	})
	return out
}

// Our dense directory is, in every slot and scalar, the one that GefenDCPState
// saved from the same state; and the directory of payloads gives the same.
func TestDenseIsWhatGefenXWrites(t *testing.T) {
	for _, c := range []string{"plain-2", "uneven-3", "bf16-2", "fsdp-2"} {
		t.Run(c, func(t *testing.T) {
			want := leaves(t, open(t, checkpoints+c+"/dcp_dense").Root)
			got := leaves(t, open(t, toDense(t, checkpoints+c+"/full.pt")).Root)
			for path, v := range want {
				if !pickle.Equal(got[path], v) {
					t.Errorf("%s differs", path)
				}
			}
			for path := range got {
				if _, ok := want[path]; !ok && path != "epoch" && !strings.HasPrefix(path, "optimizer.gefenckpt.") {
					t.Errorf("%s is not in Gefen-X's directory", path)
				}
			}
		})
	}
}

func TestEveryFaceOfAStateGivesTheSameSlots(t *testing.T) {
	want := leaves(t, open(t, toDense(t, checkpoints+"plain-2/full.pt")).Root)
	for _, face := range []string{"flat.pt", "raw.pt", "dcp_payload"} {
		got := leaves(t, open(t, toDense(t, checkpoints+"plain-2/"+face)).Root)
		for path, v := range want {
			// A raw state has no names of the model's to remember.
			if strings.HasPrefix(path, "optimizer.") && !strings.HasSuffix(path, "gefenckpt.description") && !pickle.Equal(got[path], v) {
				t.Errorf("%s: %s differs", face, path)
			}
		}
	}
}

// A second moment that is factored, and one whose optimizer was built with
// factored_v_2d, reads as what the optimizer means.
func TestDenseOfEveryOtherSource(t *testing.T) {
	for _, c := range []string{"default-2", "fsdp-default-2", "plain-4", "native-block-1", "native-factored-1"} {
		t.Run(c, func(t *testing.T) {
			src := open(t, checkpoints+c+"/full.pt")
			dst := open(t, toDense(t, checkpoints+c+"/full.pt"))
			for p := range src.Params {
				compareMoments(t, src, dst, p)
			}
		})
	}
}

// compareMoments compares parameter p of two checkpoints, bit for bit, the signs of zeros
// included.
func compareMoments(t *testing.T, a, b *checkpoint.Checkpoint, p int) {
	t.Helper()
	x, err := moments.OfParameter(a, p)
	if err != nil {
		t.Fatal(err)
	}
	y, err := moments.OfParameter(b, p)
	if err != nil {
		t.Fatal(err)
	}
	if x.Len() != y.Len() {
		t.Fatalf("%s: %d elements and %d", a.Params[p].Name, x.Len(), y.Len())
	}
	for _, read := range []func(moments.Reader, []float32, int64) error{moments.Reader.Momentum, moments.Reader.SecondMoment} {
		m, n := make([]float32, x.Len()), make([]float32, x.Len())
		if err := read(x, m, 0); err != nil {
			t.Fatal(err)
		}
		if err := read(y, n, 0); err != nil {
			t.Fatal(err)
		}
		for i := range m {
			if math.Float32bits(m[i]) != math.Float32bits(n[i]) {
				t.Fatalf("%s: element %d is %v and %v", a.Params[p].Name, i, m[i], n[i])
			}
		}
	}
}

// A directory that GefenDCPState wrote while a shard was empty has counters that
// contradict each other; ours has none, and the same tensors.
func TestBrokenCountersAreRepaired(t *testing.T) {
	src := checkpoints + "uneven-3/reshard_5/dcp_dense"
	broken := open(t, src)
	if len(broken.Warnings) == 0 {
		t.Fatal("the directory is not broken")
	}
	dst, r := convert(t, src, "dense", Options{To: checkpoint.Dense})
	repaired := open(t, dst)
	if len(repaired.Warnings) > 0 || len(r.Warnings) < len(broken.Warnings) {
		t.Errorf("%d warnings after repair, %d reported of %d", len(repaired.Warnings), len(r.Warnings), len(broken.Warnings))
	}
	for p, slot := range repaired.Slots {
		if !slot.Initialized || slot.Step != 4 || slot.VmeanStep != 4 {
			t.Errorf("%s: %v, step %d, vmean step %d", repaired.Params[p].Name, slot.Initialized, slot.Step, slot.VmeanStep)
		}
		compareMoments(t, broken, repaired, p)
	}
}

// What is written depends on the source and the options alone.
func TestOutputDoesNotDependOnJobs(t *testing.T) {
	src := checkpoints + "plain-4/full.pt"
	one, _ := convert(t, src, "out", Options{To: checkpoint.Dense, Jobs: 1})
	eight, _ := convert(t, src, "out", Options{To: checkpoint.Dense, Jobs: 8})
	entries, err := os.ReadDir(one)
	if err != nil || len(entries) < 6 {
		t.Fatalf("%d files: %v", len(entries), err)
	}
	for _, e := range entries {
		a, _ := os.ReadFile(filepath.Join(one, e.Name()))
		b, _ := os.ReadFile(filepath.Join(eight, e.Name()))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", e.Name())
		}
	}
}

// Every layout of a compact checkpoint holds the same states, and the first rank
// and the model come along.
func TestCompactKeepsTheState(t *testing.T) {
	src := open(t, checkpoints+"uneven-3/full.pt")
	for _, l := range []checkpoint.Layout{checkpoint.Nested, checkpoint.Flat, checkpoint.Raw} {
		dst, _ := convert(t, checkpoints+"uneven-3/full.pt", "x.pt", Options{To: checkpoint.Compact, Layout: l})
		c := open(t, dst)
		if c.Layout != l || c.World != 3 || len(c.Warnings) > 0 {
			t.Errorf("%s: read back as %s for %d ranks, %v", l, c.Layout, c.World, c.Warnings)
		}
		for p := range src.Params {
			compareMoments(t, src, c, p)
		}
		want, got := leaves(t, src.Root), leaves(t, c.Root)
		for path, v := range want {
			if !strings.HasPrefix(path, "optimizer.") && !pickle.Equal(got[path], v) {
				t.Errorf("%s: %s differs", l, path)
			}
		}
	}
}

func TestFailuresLeaveNothingBehind(t *testing.T) {
	good, err := os.ReadFile(checkpoints + "plain-2/full.pt")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	corrupt := filepath.Join(folder, "corrupt.pt")
	// Within the first payload's indices, far behind every header that is read at
	// the start.
	flipped := bytes.Clone(good)
	at := bytes.Index(flipped, []byte("archive/data/0"))
	flipped[at+200] ^= 1
	if err := os.WriteFile(corrupt, flipped, 0o666); err != nil {
		t.Fatal(err)
	}
	existing := filepath.Join(folder, "existing")
	if err := os.Mkdir(existing, 0o777); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		src, dst string
		o        Options
		kind     fault.Kind
	}{
		"a flipped bit":     {context.Background(), corrupt, "out", Options{To: checkpoint.Dense}, fault.Corrupt},
		"the target exists": {context.Background(), checkpoints + "plain-2/full.pt", "existing", Options{To: checkpoint.Dense}, fault.Output},
		"no folder":         {context.Background(), checkpoints + "plain-2/full.pt", "no/such/out", Options{To: checkpoint.Dense}, fault.Output},
		"interrupted":       {canceled, checkpoints + "plain-2/full.pt", "out", Options{To: checkpoint.Dense}, fault.Internal},
		"muon":              {context.Background(), checkpoints + "muon-approx-2/full.pt", "out", Options{To: checkpoint.Dense}, fault.Unsupported},
		"dense as a file":   {context.Background(), checkpoints + "plain-2/full.pt", "out.pt", Options{To: checkpoint.Dense}, fault.Usage},
		"compact directory": {context.Background(), checkpoints + "plain-2/full.pt", "out", Options{To: checkpoint.Compact}, fault.Usage},
		"no device":         {context.Background(), checkpoints + "native-block-1/full.pt", "o.pt", Options{To: checkpoint.Compact, World: 1}, fault.Usage},
		"no world":          {context.Background(), checkpoints + "native-block-1/full.pt", "o.pt", Options{To: checkpoint.Compact, DeviceType: "cpu"}, fault.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			before := listing(t, folder)
			_, err := Run(c.ctx, c.src, filepath.Join(folder, c.dst), c.o)
			if err == nil {
				t.Fatal("it succeeded")
			}
			if f := fault.Of(err); f.Kind != c.kind {
				t.Errorf("%v: %v", f.Kind, err)
			}
			if after := listing(t, folder); before != after {
				t.Errorf("left behind: %s", after)
			}
		})
	}
}

func listing(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestForceReplacesTheTarget(t *testing.T) {
	folder := t.TempDir()
	dst := filepath.Join(folder, "out")
	for range 2 {
		if _, err := Run(context.Background(), checkpoints+"plain-2/full.pt", dst, Options{To: checkpoint.Dense, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	if names := listing(t, folder); names != "out" {
		t.Errorf("left: %s", names)
	}
	open(t, dst)
}

func TestPlanWritesNothing(t *testing.T) {
	folder := t.TempDir()
	r, err := Run(context.Background(), checkpoints+"plain-2/full.pt", filepath.Join(folder, "out"), Options{To: checkpoint.Dense, Plan: true})
	if err != nil || listing(t, folder) != "" {
		t.Fatalf("%v; left: %s", err, listing(t, folder))
	}
	dst, real := convert(t, checkpoints+"plain-2/full.pt", "out", Options{To: checkpoint.Dense})
	if r.BytesOut != real.BytesOut || !r.Planned || len(r.Files) != 3 {
		t.Errorf("planned %d bytes in %d files, wrote %d", r.BytesOut, len(r.Files), real.BytesOut)
	}
	for _, f := range r.Files {
		if info, err := os.Stat(filepath.Join(dst, f.Name)); err != nil || info.Size() != f.Bytes {
			t.Errorf("%s: planned %d bytes, wrote %v (%v)", f.Name, f.Bytes, info, err)
		}
	}
}
