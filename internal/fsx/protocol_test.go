package fsx_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"
	"gefenckpt/internal/fsx/memfs"

	"github.com/google/go-cmp/cmp"
)

// scenario is one way to write an output over what is there.
type scenario struct {
	name       string
	noExchange bool
	target     string
	options    fsx.Options
	before     map[string]string // path to contents
	staged     map[string]string // name to contents
}

var scenarios = []scenario{
	{
		name: "a new directory", target: "/runs/out", options: fsx.Options{Directory: true},
		staged: map[string]string{"__0_0.distcp": "new shard", "__1_0.distcp": "new other shard", ".metadata": "new metadata"},
	},
	{
		name: "a directory in the place of another", target: "/runs/out", options: fsx.Options{Directory: true, Force: true},
		before: map[string]string{"/runs/out/__0_0.distcp": "old shard", "/runs/out/.metadata": "old metadata"},
		staged: map[string]string{"__0_0.distcp": "new shard", ".metadata": "new metadata"},
	},
	{
		name: "a directory in the place of another, without exchange", target: "/runs/out", options: fsx.Options{Directory: true, Force: true}, noExchange: true,
		before: map[string]string{"/runs/out/__0_0.distcp": "old shard", "/runs/out/.metadata": "old metadata"},
		staged: map[string]string{"__0_0.distcp": "new shard", ".metadata": "new metadata"},
	},
	{
		name: "a new file", target: "/runs/out.pt",
		staged: map[string]string{"out.pt": "new state", "out.pt.json": "new manifest"},
	},
	{
		name: "a file in the place of another", target: "/runs/out.pt", options: fsx.Options{Force: true},
		before: map[string]string{"/runs/out.pt": "old state", "/runs/out.pt.json": "old manifest"},
		staged: map[string]string{"out.pt": "new state", "out.pt.json": "new manifest"},
	},
	{
		name: "a file alone in the place of another", target: "/runs/out.pt", options: fsx.Options{Force: true},
		before: map[string]string{"/runs/out.pt": "old state"},
		staged: map[string]string{"out.pt": "new state"},
	},
	{
		name: "a file after a run that died", target: "/runs/out.pt", options: fsx.Options{Force: true},
		before: map[string]string{"/runs/out.pt": "old state", "/runs/.out.pt.gefenckpt-partial/out.pt": "half a st"},
		staged: map[string]string{"out.pt": "new state", "out.pt.json": "new manifest"},
	},
}

// files returns what is on the disk before the scenario.
func (s scenario) files() *memfs.FS {
	m := memfs.New()
	m.NoExchange = s.noExchange
	m.PutDir("/runs")
	m.Put("/runs/neighbour", "not ours")
	for path, contents := range s.before {
		m.Put(path, contents)
	}
	return m
}

// stage writes the staged files, in the order of their names.
func (s scenario) stage(m fsx.FS) (*fsx.Staging, error) {
	staging, err := fsx.Stage(m, s.target, s.options)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.staged)) {
		w, err := staging.Create(name)
		if err == nil {
			_, err = w.Write([]byte(s.staged[name]))
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			return nil, errors.Join(err, staging.Abort())
		}
	}
	return staging, nil
}

func (s scenario) run(m fsx.FS) error {
	staging, err := s.stage(m)
	if err != nil {
		return err
	}
	return staging.Commit()
}

// old and fresh are the trees with the old target, and with the new one.
func (s scenario) old() map[string]string {
	out := s.files().Tree()
	maps.DeleteFunc(out, func(path, _ string) bool { return strings.Contains(path, "gefenckpt-partial") })
	return out
}

func (s scenario) fresh() map[string]string {
	out := map[string]string{"/runs/": "", "/runs/neighbour": "not ours"}
	prefix := "/runs/"
	if s.options.Directory {
		out[s.target+"/"] = ""
		prefix = s.target + "/"
	}
	for name, contents := range s.staged {
		out[prefix+name] = contents
	}
	return out
}

// without is a tree without the paths that contain any of the texts.
func without(tree map[string]string, texts ...string) map[string]string {
	out := maps.Clone(tree)
	maps.DeleteFunc(out, func(path, _ string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(path, t) })
	})
	return out
}

// condition says what a tree shows at the target: "old", "new", either with a
// note that the companion is missing, or the difference from both.
func (s scenario) condition(m *memfs.FS) string {
	tree := without(m.Tree(), "gefenckpt-partial", "gefenckpt-old")
	for _, c := range []struct {
		name string
		tree map[string]string
	}{
		{"old", s.old()}, {"new", s.fresh()},
		{"old, without companion", without(s.old(), ".json")},
		{"new, without companion", without(s.fresh(), ".json")},
	} {
		if maps.Equal(tree, c.tree) {
			return c.name
		}
	}
	if s.noExchange && cmp.Equal(tree, without(s.old(), s.target)) {
		return "moved aside"
	}
	return cmp.Diff(s.old(), tree)
}

// wantCondition fails the test unless the target shows one of what is allowed.
func wantCondition(t *testing.T, s scenario, m *memfs.FS, allowed ...string) {
	t.Helper()
	if got := s.condition(m); !slices.Contains(allowed, got) {
		t.Fatalf("the target is %s\nallowed: %q\ntree: %q", got, allowed, m.Tree())
	}
}

// each runs a test at every operation of every scenario.
func each(t *testing.T, test func(t *testing.T, s scenario, k int)) {
	for _, s := range scenarios {
		m := s.files()
		if err := s.run(m); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		for k := 1; k <= m.Ops(); k++ {
			t.Run(fmt.Sprintf("%s/%d", s.name, k), func(t *testing.T) { test(t, s, k) })
		}
	}
}

func TestCommitLeavesTheTargetAndNothingElse(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			m := s.files()
			if err := s.run(m); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.fresh(), m.Tree()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(s.fresh(), without(m.Crash(memfs.Everything).Tree(), "gefenckpt-")); diff != "" {
				t.Errorf("after a crash that takes all that it can: %s", diff)
			}
		})
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			m := s.files()
			staging, err := s.stage(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := staging.Create("still open"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := staging.Abort(); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(s.old(), m.Tree()); diff != "" {
				t.Error(diff)
			}
			if err := s.run(m); err != nil {
				t.Errorf("the next run: %v", err)
			}
		})
	}
}

// One operation fails, and all that follow work: the target is old or new, the
// error says so, and nothing is left over if the target is old.
func TestOneOperationFails(t *testing.T) {
	each(t, func(t *testing.T, s scenario, k int) {
		for _, f := range []struct {
			memfs.Failure
			kind fault.Kind
		}{
			{memfs.Failure{At: k, Err: syscall.ENOSPC}, fault.Resource},
			{memfs.Failure{At: k, Err: syscall.EDQUOT}, fault.Resource},
			{memfs.Failure{At: k, Err: syscall.EIO}, fault.Output},
			{memfs.Failure{At: k, Err: syscall.EIO, Short: true}, fault.Output},
		} {
			m := s.files()
			m.Fail(f.Failure)
			err := s.run(m)
			if err == nil {
				t.Fatalf("%v: no error", f.Err)
			}
			if got := fault.Of(err); got.Kind != f.kind || got.Path == "" || got.Hint == "" {
				t.Errorf("%v: %v fault in %q: %v", f.Err, got.Kind, got.Path, got)
			}
			if placed := strings.Contains(err.Error(), "the target is in place"); placed {
				wantCondition(t, s, m, "new", "new, without companion")
			} else {
				wantCondition(t, s, m, "old")
			}
			m.Fail(memfs.Failure{})
			again := s
			again.options.Force = true
			if err := again.run(m); err != nil {
				t.Fatalf("%v: the next run: %v", f.Err, err)
			}
			if diff := cmp.Diff(s.fresh(), m.Tree()); diff != "" {
				t.Errorf("%v: after the next run: %s", f.Err, diff)
			}
		}
	})
}

// The disk goes away for good.
func TestAllOperationsFailFrom(t *testing.T) {
	each(t, func(t *testing.T, s scenario, k int) {
		m := s.files()
		m.Fail(memfs.Failure{At: k, Err: syscall.EIO, After: true})
		if err := s.run(m); fault.KindOf(err) != fault.Output {
			t.Errorf("%v", err)
		}
		wantCondition(t, s, m, "old", "new", "old, without companion", "new, without companion", "moved aside")
	})
}

// The machine stops, and starts again with what the disk kept.
func TestPowerCut(t *testing.T) {
	losses := map[string]memfs.Loss{"nothing": memfs.Nothing, "everything": memfs.Everything}
	for seed := range uint64(8) {
		losses[fmt.Sprint("chance ", seed)] = memfs.Chance(seed)
	}
	each(t, func(t *testing.T, s scenario, k int) {
		m := s.files()
		m.Fail(memfs.PowerCut(k))
		if err := s.run(m); err == nil {
			t.Fatal("no error without power")
		}
		for name, loss := range losses {
			kept := m.Crash(loss)
			wantCondition(t, s, kept, "old", "new", "old, without companion", "new, without companion", "moved aside")

			t.Log("lost: ", name)
			again := s
			again.options.Force = true
			staging, err := again.stage(kept)
			if err != nil {
				t.Fatal(err)
			}
			wantCondition(t, s, kept, "old", "new", "old, without companion", "new, without companion")
			if err := staging.Commit(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.fresh(), kept.Tree()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
