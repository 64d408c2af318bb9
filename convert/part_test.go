package convert

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx/memfs"

	"github.com/google/go-cmp/cmp"
)

// inParts are the writings that can be written in parts.
var inParts = []struct {
	src, dst string
	o        Options
}{
	{checkpoints + "plain-2/full.pt", "/runs/out.pt", Options{To: checkpoint.Compact, World: 5, Fidelity: Balanced, MaxGrowth: 0.05}},
	{checkpoints + "plain-2/full.pt", "/runs/out.pt", Options{To: checkpoint.Compact, World: 3, Fidelity: Lossless}},
	{checkpoints + "plain-2/full.pt", "/runs/out.pt", Options{To: checkpoint.Compact, World: 4, Fidelity: Reference}},
	{checkpoints + "plain-2/dcp_payload", "/runs/out.pt", Options{To: checkpoint.Compact}},
	{checkpoints + "plain-2/dcp_dense", "/runs/out.pt", Options{To: checkpoint.Compact, World: 3, Fidelity: Balanced, MaxGrowth: 0.05, DeviceType: "cpu"}},
	{checkpoints + "plain-2/full.pt", "/runs/out", Options{To: checkpoint.Dense, World: 4}},
}

// runParts writes all parts, the last first.
func runParts(t *testing.T, m *memfs.FS, src, dst string, o Options, n int) {
	t.Helper()
	for i := n; i >= 1; i-- {
		o.Part = Part{i, n}
		if err := onto(context.Background(), m, src, dst, o); err != nil {
			t.Fatalf("part %d of %d: %v", i, n, err)
		}
	}
}

// Joined parts are one run's bytes, the manifest's included, and leave nothing.
func TestPartsAreOneRun(t *testing.T) {
	for _, w := range inParts {
		whole := disk(w.dst, false)
		if err := onto(context.Background(), whole, w.src, w.dst, w.o); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 3; n++ {
			if w.o.World == 0 && n > 2 {
				continue
			}
			m := disk(w.dst, false)
			runParts(t, m, w.src, w.dst, w.o, n)
			o := w.o
			o.Finish = true
			if err := onto(context.Background(), m, w.src, w.dst, o); err != nil {
				t.Fatalf("%s %+v of %d parts: %v", w.src, w.o, n, err)
			}
			if !cmp.Equal(whole.Tree(), m.Tree()) {
				t.Errorf("%s %+v of %d parts: %v, expected %v", w.src, w.o, n, names(m.Tree()), names(whole.Tree()))
			}
		}
	}
}

func TestFinishRefuses(t *testing.T) {
	w := inParts[0]
	part := func(m *memfs.FS) string {
		for path := range m.Tree() {
			if strings.HasSuffix(path, "/part-2/payload-2.pt") {
				return path
			}
		}
		t.Fatal("there is no payload of rank 2")
		return ""
	}
	for name, c := range map[string]struct {
		prepare func(m *memfs.FS, o *Options)
		kind    fault.Kind
		text    string
	}{
		"no part": {func(m *memfs.FS, o *Options) {
			for path := range m.Tree() {
				if strings.HasSuffix(path, "-of-2/") {
					m.Rename(path, "/elsewhere")
				}
			}
		}, fault.Incomplete, "--part 1/N"},
		"a part is missing": {func(m *memfs.FS, o *Options) {
			m.Rename(strings.TrimSuffix(part(m), "/payload-2.pt"), "/elsewhere")
		}, fault.Incomplete, "--part 2/2"},
		"other options":  {func(m *memfs.FS, o *Options) { o.MaxGrowth = 0.5 }, fault.Incomplete, "other options"},
		"another number": {func(m *memfs.FS, o *Options) { runParts(t, m, w.src, w.dst, w.o, 3) }, fault.Usage, "different numbers of parts"},
		"a flipped byte": {func(m *memfs.FS, o *Options) { overwrite(m, part(m), 500) }, fault.Corrupt, "run the part again"},
		"a short file": {func(m *memfs.FS, o *Options) {
			m.Append(part(m), 500)
		}, fault.Corrupt, "run the part again"},
		"a file is gone": {func(m *memfs.FS, o *Options) { m.Remove(part(m)) }, fault.Incomplete, "run that part again"},
		"a torn record": {func(m *memfs.FS, o *Options) {
			m.Append(strings.Replace(part(m), "payload-2.pt", recordName, 1), 100)
		}, fault.Corrupt, "run the part again"},
		"both at once": {func(m *memfs.FS, o *Options) { o.Part = Part{1, 2} }, fault.Usage, "exclude each other"},
	} {
		m := disk(w.dst, false)
		runParts(t, m, w.src, w.dst, w.o, 2)
		o := w.o
		o.Finish = true
		c.prepare(m, &o)
		before := m.Tree()
		err := onto(context.Background(), m, w.src, w.dst, o)
		if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v fault %v, want a %v fault with %q", name, fault.KindOf(err), err, c.kind, c.text)
		}
		if !cmp.Equal(before, m.Tree()) {
			t.Errorf("%s: something is left or gone", name)
		}
	}
}

// overwrite changes one byte of a file.
func overwrite(m *memfs.FS, path string, at int64) {
	text := m.Tree()[path]
	f, err := m.Append(path, at)
	if err == nil {
		_, err = io.WriteString(f, string(text[at]^1)+text[at+1:])
	}
	if err != nil {
		panic(err)
	}
}

// A part that was killed is resumed, and one that is there is not written again.
func TestPartsAreKilledAndResumed(t *testing.T) {
	w := inParts[0]
	whole := disk(w.dst, false)
	if err := onto(context.Background(), whole, w.src, w.dst, w.o); err != nil {
		t.Fatal(err)
	}
	for k := 1; k < 40; k += 3 {
		m := disk(w.dst, false)
		for i := 1; i <= 2; i++ {
			o := w.o
			o.Part = Part{i, 2}
			m.Fail(memfs.PowerCut(m.Ops() + k))
			if onto(context.Background(), m, w.src, w.dst, o) != nil {
				m = m.Crash(memfs.Nothing)
				o.Resume = true
			}
			m.Fail(memfs.Failure{})
			if err := onto(context.Background(), m, w.src, w.dst, o); err != nil {
				t.Fatalf("killed at %d: %v", k, err)
			}
		}
		o := w.o
		o.Finish = true
		if err := onto(context.Background(), m, w.src, w.dst, o); err != nil {
			t.Fatalf("killed at %d: %v", k, err)
		}
		if !cmp.Equal(whole.Tree(), m.Tree()) {
			t.Errorf("killed at %d: the output differs", k)
		}
	}
}

func TestPartRefuses(t *testing.T) {
	src := checkpoints + "plain-2/full.pt"
	for _, c := range []struct {
		dst  string
		o    Options
		text string
	}{
		{"/runs/out.pt", Options{To: checkpoint.Compact, World: 2, Part: Part{1, 3}}, "3 parts, and 2 ranks"},
		{"/runs/out.pt", Options{To: checkpoint.Native, Part: Part{1, 1}}, "written in parts"},
		{"/runs/out", Options{To: checkpoint.Compact, Container: checkpoint.Directory, Part: Part{1, 1}}, "written in parts"},
		{"/runs/out.pt", Options{To: checkpoint.Compact, World: 3, Plan: true, Part: Part{1, 3}}, "--plan"},
	} {
		m := disk(c.dst, false)
		before := fmt.Sprint(m.Tree())
		err := onto(context.Background(), m, src, c.dst, c.o)
		if fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %q", err, c.text)
		}
		if fmt.Sprint(m.Tree()) != before {
			t.Errorf("%s: something was written", c.text)
		}
	}
}
