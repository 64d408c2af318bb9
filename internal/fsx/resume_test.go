package fsx_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"
	"gefenckpt/internal/fsx/memfs"

	"github.com/google/go-cmp/cmp"
)

// work is an output that is written in pieces of which some are offered for
// replay, as package torchfile does with members.
type work struct {
	options fsx.Options
	target  string
	files   [][]string // pieces by file
}

func randomWork(r *rand.Rand) work {
	w := work{target: "/runs/out", options: fsx.Options{Directory: true}}
	if r.IntN(2) == 0 {
		w.target, w.options.Directory = "/runs/file0", false
	}
	w.options.Force = true // a crash may come when the target is in place already
	w.options.SyncEvery = int64(1 + r.IntN(300))
	w.options.Pins = []fsx.Pin{{What: "the seed", Value: "1"}}
	for range 1 + r.IntN(3) {
		var pieces []string
		for range r.IntN(12) {
			piece := make([]byte, r.IntN(200))
			for i := range piece {
				piece[i] = byte('a' + r.IntN(26))
			}
			pieces = append(pieces, string(piece))
		}
		w.files = append(w.files, pieces)
	}
	return w
}

// want is the tree of the finished work.
func (w work) want() map[string]string {
	out := map[string]string{"/runs/": ""}
	prefix := "/runs/"
	if w.options.Directory {
		prefix = w.target + "/"
		out[prefix] = ""
	}
	for i, pieces := range w.files {
		out[fmt.Sprintf("%sfile%d", prefix, i)] = strings.Join(pieces, "")
	}
	return out
}

// run does the work; stop, unless it is negative, is after how many pieces it is
// suspended. made counts the bytes that were made and not replayed.
func (w work) run(m fsx.FS, stop int) (made int, err error) {
	staging, err := fsx.Stage(m, w.target, w.options)
	if err != nil {
		return 0, err
	}
	for i, pieces := range w.files {
		out, err := staging.Create(fmt.Sprintf("file%d", i))
		if err != nil {
			return made, errors.Join(err, staging.Abort())
		}
		for k, piece := range pieces {
			if stop == 0 {
				return made, staging.Suspend()
			}
			stop--
			there := false
			if k%3 != 0 {
				var tee strings.Builder
				there, err = out.Replay(int64(len(piece)), &tee)
				if there && tee.String() != piece {
					return made, fmt.Errorf("replayed %q, and %q was written", tee.String(), piece)
				}
			}
			if err == nil && !there {
				made += len(piece)
				_, err = io.WriteString(out, piece)
			}
			if err != nil {
				return made, errors.Join(err, staging.Abort())
			}
		}
		if err := out.Close(); err != nil {
			return made, errors.Join(err, staging.Abort())
		}
	}
	return made, staging.Commit()
}

func TestResumeAfterCrashes(t *testing.T) {
	resumed := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWork(r)
		m := memfs.New()
		m.PutDir("/runs")
		for cut := range 4 {
			m.Fail(memfs.PowerCut(m.Ops() + 1 + r.IntN(60)))
			_, err := w.run(m, -1)
			if err == nil {
				break
			}
			loss := memfs.Chance(seed + uint64(cut))
			if seed%2 == 0 { // the process is killed, and the machine goes on
				loss = memfs.Nothing
			}
			m = m.Crash(loss)
			w.options.Resume = r.IntN(4) > 0
		}
		m.Fail(memfs.Failure{})
		w.options.Resume = true
		total := 0
		for _, f := range w.files {
			total += len(strings.Join(f, ""))
		}
		made, err := w.run(m, -1)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if made < total {
			resumed++
		}
		if diff := cmp.Diff(w.want(), m.Tree()); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	if resumed < 40 {
		t.Errorf("only %d runs were resumed", resumed)
	}
}

func TestResumeWhatWasSuspended(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWork(r)
		w.options.SyncEvery = 0
		pieces := 0
		for _, f := range w.files {
			pieces += len(f)
		}
		if pieces == 0 {
			continue
		}
		m := memfs.New()
		m.PutDir("/runs")
		first, err := w.run(m, r.IntN(pieces))
		if err != nil {
			t.Fatal(err)
		}
		m = m.Crash(memfs.Nothing)
		w.options.Resume = true
		second, err := w.run(m, -1)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(w.want(), m.Tree()); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		total, unreplayed := 0, 0
		for _, f := range w.files {
			for k, p := range f {
				total += len(p)
				if k%3 == 0 {
					unreplayed += len(p)
				}
			}
		}
		if second > total-first+unreplayed {
			t.Errorf("seed %d: of %d bytes %d were made at first, and %d again", seed, total, first, second)
		}
	}
}

// interrupted is a run of one file that was suspended in the middle.
func interrupted(t *testing.T) *memfs.FS {
	t.Helper()
	m := memfs.New()
	w := work{target: "/x", options: fsx.Options{Pins: []fsx.Pin{{What: "--to", Value: "4"}}}, files: [][]string{{"abc", "def"}}}
	if _, err := w.run(m, 1); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestResumeRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		pins    []fsx.Pin
		pieces  []string
		prepare func(m *memfs.FS)
		kind    fault.Kind
		text    string
	}{
		{name: "another option", pins: []fsx.Pin{{What: "--to", Value: "3"}}, kind: fault.Usage, text: "--to was 4 then, and is 3 now"},
		{name: "an option less", kind: fault.Usage, text: "--to was 4 then, and is none now"},
		{name: "an option more", pins: []fsx.Pin{{What: "--to", Value: "4"}, {What: "--key", Value: "a"}}, kind: fault.Usage, text: "--key was none then, and is a now"},
		{name: "other bytes", pins: []fsx.Pin{{What: "--to", Value: "4"}}, pieces: []string{"abX", "def"}, kind: fault.Output, text: "not what belongs there"},
		{name: "fewer bytes", pins: []fsx.Pin{{What: "--to", Value: "4"}}, pieces: []string{"ab"}, kind: fault.Output, text: "not what belongs there"},
		{name: "damaged bytes", pins: []fsx.Pin{{What: "--to", Value: "4"}}, pieces: []string{"abc", "def"}, kind: fault.Output, text: "not what belongs there",
			prepare: func(m *memfs.FS) {
				f, err := m.Append("/.x.gefenckpt-partial/file0", 1)
				if err == nil {
					io.WriteString(f, "Xc")
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := interrupted(t)
			if c.prepare != nil {
				c.prepare(m)
			}
			w := work{target: "/x", options: fsx.Options{Pins: c.pins, Resume: true}, files: [][]string{c.pieces}}
			_, err := w.run(m, -1)
			if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v fault: %v\nwant a %v fault with %q", fault.KindOf(err), err, c.kind, c.text)
			}
			if !strings.Contains(fault.Of(err).Hint, "without --resume") {
				t.Errorf("the hint is %q", fault.Of(err).Hint)
			}
		})
	}
}

// Without a journal that can be read, or without --resume, a run begins anew.
func TestBeginAnew(t *testing.T) {
	for name, prepare := range map[string]func(*memfs.FS){
		"no journal":      func(m *memfs.FS) { m.Remove("/.x.gefenckpt-partial/journal.gefenckpt") },
		"an empty one":    func(m *memfs.FS) { m.Append("/.x.gefenckpt-partial/journal.gefenckpt", 0) },
		"a torn one":      func(m *memfs.FS) { m.Append("/.x.gefenckpt-partial/journal.gefenckpt", 20) },
		"a file is short": func(m *memfs.FS) { m.Append("/.x.gefenckpt-partial/file0", 2) },
	} {
		m := interrupted(t)
		prepare(m)
		w := work{target: "/x", options: fsx.Options{Pins: []fsx.Pin{{What: "--to", Value: "4"}}, Resume: true}, files: [][]string{{"", "xyz"}}}
		w.target = "/x"
		if _, err := w.run(m, -1); err != nil && !strings.Contains(err.Error(), "was not staged") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
