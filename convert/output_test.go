package convert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gefenckpt/format/checkpoint"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx/memfs"

	"github.com/google/go-cmp/cmp"
)

// writings are a convert and a reshard, of a file and of a directory.
var writings = []struct {
	name, src, dst string
	o              Options
}{
	{"convert to a directory", checkpoints + "plain-2/full.pt", "/runs/out", Options{To: checkpoint.Dense}},
	{"convert to a file", checkpoints + "plain-2/dcp_payload", "/runs/out.pt", Options{To: checkpoint.Native}},
	{"reshard a file", checkpoints + "plain-2/full.pt", "/runs/out.pt", Options{To: checkpoint.Compact, World: 3, Fidelity: Balanced, MaxGrowth: 0.05}},
	{"reshard a directory", checkpoints + "plain-2/dcp_dense", "/runs/out", Options{To: checkpoint.Dense, World: 4}},
}

const old = "what stood there before"

// disk is a file system with a neighbour and, if replaced, a target.
func disk(dst string, replaced bool) *memfs.FS {
	m := memfs.New()
	m.PutDir("/runs")
	m.Put("/runs/neighbour", "not ours")
	switch {
	case replaced && strings.HasSuffix(dst, ".pt"):
		m.Put(dst, old)
	case replaced:
		m.Put(dst+"/.metadata", old)
	}
	return m
}

// onto runs a conversion onto a file system in memory.
func onto(ctx context.Context, m *memfs.FS, src, dst string, o Options) error {
	_, err := run(ctx, src, dst, o, output{fs: m, syncEvery: 4 << 10})
	return err
}

// seen is a tree without what a run that died leaves for the next.
func seen(m *memfs.FS) map[string]string {
	tree := m.Tree()
	maps.DeleteFunc(tree, func(path, _ string) bool {
		return strings.Contains(path, "gefenckpt-partial") || strings.Contains(path, "gefenckpt-old")
	})
	return tree
}

// sourceTree is the contents of all files of a source.
func sourceTree(t *testing.T, src string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(src, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			data, e := os.ReadFile(path)
			out[path], err = string(data), e
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever operation on the target's disk fails, and however, the target is what
// it was or the new one, whole; an error says which kind it is and what to do.
func TestEveryOperationFails(t *testing.T) {
	failures := []struct {
		name  string
		f     memfs.Failure
		kinds []fault.Kind
	}{
		{"the disk is full", memfs.Failure{Err: syscall.ENOSPC}, []fault.Kind{fault.Resource}},
		{"the disk fails", memfs.Failure{Err: syscall.EIO}, []fault.Kind{fault.Output}},
		{"a short write", memfs.Failure{Err: syscall.EIO, Short: true}, []fault.Kind{fault.Output}},
	}
	for _, w := range writings {
		for _, replaced := range []bool{false, true} {
			o := w.o
			o.Jobs, o.Force = 1, replaced
			t.Run(fmt.Sprintf("%s, replaced %v", w.name, replaced), func(t *testing.T) {
				t.Parallel()
				source := sourceTree(t, w.src)
				before := seen(disk(w.dst, replaced))
				m := disk(w.dst, replaced)
				if err := onto(context.Background(), m, w.src, w.dst, o); err != nil {
					t.Fatal(err)
				}
				after, ops := seen(m), m.Ops()
				if len(after) == len(before) && !replaced {
					t.Fatal("nothing was written")
				}
				for k := 1; k <= ops; k += stride() {
					for _, f := range failures {
						m := disk(w.dst, replaced)
						f.f.At = k
						m.Fail(f.f)
						err := onto(context.Background(), m, w.src, w.dst, o)
						checkOutcome(t, fmt.Sprintf("%s at operation %d of %d", f.name, k, ops), m, before, after, err, f.kinds)
					}
					m := disk(w.dst, replaced)
					m.Fail(memfs.PowerCut(k))
					onto(context.Background(), m, w.src, w.dst, o)
					for seed := range uint64(3) {
						c := m.Crash(memfs.Chance(seed))
						// The manifest of a file follows it.
						got := seen(c)
						if _, there := got[w.dst+".gefenckpt.json"]; !there && cmp.Equal(got, without(after, w.dst+".gefenckpt.json")) {
							continue
						}
						checkOutcome(t, fmt.Sprintf("a power cut at operation %d of %d, seed %d", k, ops, seed), c, before, after, nil, nil)
					}
				}
				if diff := cmp.Diff(source, sourceTree(t, w.src)); diff != "" {
					t.Errorf("the source has changed: %s", diff)
				}
			})
		}
	}
}

// stride is how many operations a test of every one of them leaves out between
// two; the environment can ask for all.
func stride() int {
	if os.Getenv("GEFENCKPT_TEST_ALL") != "" {
		return 1
	}
	return 7
}

func without(tree map[string]string, name string) map[string]string {
	out := maps.Clone(tree)
	delete(out, name)
	return out
}

func checkOutcome(t *testing.T, what string, m *memfs.FS, before, after map[string]string, err error, kinds []fault.Kind) {
	t.Helper()
	tree := seen(m)
	placed := err != nil && strings.Contains(err.Error(), "is in place")
	switch {
	case cmp.Equal(tree, after), cmp.Equal(tree, before) && !placed:
	case placed: // the error names what is not right
	default:
		t.Errorf("%s leaves %v (error %v)", what, names(tree), err)
	}
	if err == nil {
		return
	}
	f := fault.Of(err)
	for _, k := range kinds {
		if f.Kind == k && f.Hint != "" {
			return
		}
	}
	t.Errorf("%s: %v fault %v, hint %q", what, f.Kind, err, f.Hint)
}

func names(tree map[string]string) []string {
	var out []string
	for path, text := range tree {
		out = append(out, fmt.Sprintf("%s (%d bytes)", path, len(text)))
	}
	return out
}

// Killed at a random moment, even while it resumes, and resumed, a run writes the
// bytes of one that was not interrupted.
func TestKilledAndResumed(t *testing.T) {
	for _, w := range writings {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			whole := disk(w.dst, false)
			o := w.o
			o.Jobs = 2
			if err := onto(context.Background(), whole, w.src, w.dst, o); err != nil {
				t.Fatal(err)
			}
			want, ops := seen(whole), whole.Ops()
			for seed := range uint64(25) {
				r := rand.New(rand.NewPCG(seed, 7))
				m := disk(w.dst, false)
				o := o
				for kills := 1 + r.IntN(3); kills > 0; kills-- {
					m.Fail(memfs.PowerCut(m.Ops() + 1 + r.IntN(ops)))
					if onto(context.Background(), m, w.src, w.dst, o) == nil {
						break
					}
					m = m.Crash(memfs.Chance(seed))
					o.Resume = true
				}
				m.Fail(memfs.Failure{})
				o.Force = true // it may have been killed when the target was in place
				if err := onto(context.Background(), m, w.src, w.dst, o); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if diff := cmp.Diff(want, m.Tree()); diff != "" {
					t.Fatalf("seed %d: the output differs", seed)
				}
			}
		})
	}
}

// An interrupt keeps what is written, and the run that resumes does not make it
// again.
func TestInterruptedAndResumed(t *testing.T) {
	for _, w := range writings {
		m := disk(w.dst, false)
		ctx, cancel := context.WithCancel(context.Background())
		o := w.o
		o.Progress = func(done, total int64) {
			if done > total/2 {
				cancel()
			}
		}
		err := onto(ctx, m, w.src, w.dst, o)
		if fault.KindOf(err) != fault.Interrupted || !strings.Contains(err.Error(), "--resume") {
			t.Fatalf("%s: interrupted: %v", w.name, err)
		}
		o.Progress, o.Resume = nil, true
		r, err := run(context.Background(), w.src, w.dst, o, output{fs: m})
		if err != nil {
			t.Fatalf("%s: resumed: %v", w.name, err)
		}
		if r.BytesKept == 0 {
			t.Errorf("%s: nothing was kept", w.name)
		}
		whole := disk(w.dst, false)
		o.Resume = false
		if err := onto(context.Background(), whole, w.src, w.dst, o); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(seen(whole), m.Tree()) {
			t.Errorf("%s: the output differs", w.name)
		}
	}
}

// A run that is not the interrupted one is refused by name.
func TestResumeIsPinned(t *testing.T) {
	src := filepath.Join(t.TempDir(), "full.pt")
	data, err := os.ReadFile(checkpoints + "plain-2/full.pt")
	if err == nil {
		err = os.WriteFile(src, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := Options{To: checkpoint.Compact, World: 3, Fidelity: Balanced, Tool: "gefenckpt 1"}
	m := disk("/runs/out.pt", false)
	m.Fail(memfs.PowerCut(30))
	if err := onto(context.Background(), m, src, "/runs/out.pt", o); !errors.Is(err, memfs.ErrPower) {
		t.Fatalf("it was not interrupted: %v", err)
	}
	o.Resume = true
	for _, c := range []struct {
		change func(o *Options)
		text   string
	}{
		{func(o *Options) { o.World = 4 }, "world was 3 then, and is 4 now"},
		{func(o *Options) { o.Fidelity = Lossless }, `fidelity was "balanced" then, and is "lossless" now`},
		{func(o *Options) { o.Tool = "gefenckpt 2" }, `version of the tool was "gefenckpt 1" then, and is "gefenckpt 2" now`},
		{func(o *Options) { os.Chtimes(src, time.Time{}, time.Unix(1, 0)) }, "the source's file full.pt was"},
	} {
		again := m.Crash(memfs.Nothing)
		o := o
		c.change(&o)
		err := onto(context.Background(), again, src, "/runs/out.pt", o)
		if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %q", err, c.text)
		}
	}
}
