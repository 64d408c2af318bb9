package fsx_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"
	"gefenckpt/internal/fsx/memfs"

	"github.com/google/go-cmp/cmp"
)

func TestStageRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(m *memfs.FS)
		target  string
		options fsx.Options
		kind    fault.Kind
		text    string
	}{
		{"a file that exists", func(m *memfs.FS) { m.Put("/d/x.pt", "") }, "/d/x.pt", fsx.Options{}, fault.Output, "exists; choose another name, or replace it with --force"},
		{"a directory that exists", func(m *memfs.FS) { m.PutDir("/d/x") }, "/d/x", fsx.Options{Directory: true}, fault.Output, "exists"},
		{"a file for a directory", func(m *memfs.FS) { m.Put("/d/x", "") }, "/d/x", fsx.Options{Directory: true, Force: true}, fault.Output, "is a file"},
		{"a directory for a file", func(m *memfs.FS) { m.PutDir("/d/x.pt") }, "/d/x.pt", fsx.Options{Force: true}, fault.Output, "is a directory"},
		{"a link", func(m *memfs.FS) { m.PutLink("/d/x", "/home") }, "/d/x", fsx.Options{Directory: true, Force: true}, fault.Output, "symbolic link"},
		{"a link to nowhere", func(m *memfs.FS) { m.PutLink("/d/x.pt", "/nowhere") }, "/d/x.pt", fsx.Options{Force: true}, fault.Output, "symbolic link"},
		{"a tree of directories", func(m *memfs.FS) { m.Put("/d/x/photos/1", "") }, "/d/x", fsx.Options{Directory: true, Force: true}, fault.Output, `holds another one, "photos"`},
		{"no folder", func(m *memfs.FS) { m.PutDir("/e") }, "/d/x", fsx.Options{Directory: true}, fault.Output, "make the folder first"},
		{"the root", func(m *memfs.FS) {}, "/", fsx.Options{Directory: true, Force: true}, fault.Output, "no name"},
		{"this directory", func(m *memfs.FS) {}, ".", fsx.Options{Directory: true, Force: true}, fault.Output, "no name"},
		{"the directory above", func(m *memfs.FS) {}, "a/../..", fsx.Options{Directory: true, Force: true}, fault.Output, "no name"},
		{"a full disk", func(m *memfs.FS) { m.PutDir("/d"); m.FreeBytes = 99 }, "/d/x", fsx.Options{Directory: true, Bytes: 100}, fault.Resource, "takes 100 bytes, and the disk has 99 left"},
		{"a file where it stages", func(m *memfs.FS) { m.Put("/d/.x.gefenckpt-partial", "") }, "/d/x", fsx.Options{Directory: true}, fault.Output, "something else has its name"},
		{"a link where it stages", func(m *memfs.FS) { m.PutLink("/d/.x.gefenckpt-partial", "/home") }, "/d/x", fsx.Options{Directory: true}, fault.Output, "something else has its name"},
		{"directories where it stages", func(m *memfs.FS) { m.Put("/d/.x.gefenckpt-partial/a/b", "") }, "/d/x", fsx.Options{Directory: true}, fault.Output, "holds another one"},
		{"a target that a dead run was replacing", func(m *memfs.FS) { m.Put("/d/.x.gefenckpt-old/a", "") }, "/d/x", fsx.Options{Directory: true}, fault.Output, "exists"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := memfs.New()
			c.prepare(m)
			before := m.Tree()
			_, err := fsx.Stage(m, c.target, c.options)
			if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v fault: %v\nwant a %v fault with %q", fault.KindOf(err), err, c.kind, c.text)
			}
			after := m.Tree()
			if c.name == "a target that a dead run was replacing" {
				before = map[string]string{"/d/": "", "/d/x/": "", "/d/x/a": ""}
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("what is on the disk has changed: %s", diff)
			}
		})
	}
}

func TestStageFitsTheDisk(t *testing.T) {
	m := memfs.New()
	m.FreeBytes = 100
	staging, err := fsx.Stage(m, "/x", fsx.Options{Bytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := staging.Abort(); err != nil {
		t.Error(err)
	}
}

func TestTwoRunsForOneTarget(t *testing.T) {
	m := memfs.New()
	first, err := fsx.Stage(m, "/x", fsx.Options{Directory: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fsx.Stage(m, "/x", fsx.Options{Directory: true}); fault.KindOf(err) != fault.Output || !strings.Contains(err.Error(), "another run is writing it") {
		t.Errorf("the second run: %v", err)
	}
	if err := first.Commit(); err != nil {
		t.Errorf("the first run: %v", err)
	}
	if diff := cmp.Diff(map[string]string{"/x/": ""}, m.Tree()); diff != "" {
		t.Error(diff)
	}
}

func TestATargetAppearsMeanwhile(t *testing.T) {
	for _, directory := range []bool{true, false} {
		m := memfs.New()
		staging, err := fsx.Stage(m, "/x", fsx.Options{Directory: directory})
		if err != nil {
			t.Fatal(err)
		}
		w, err := staging.Create("x")
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		m.Put("/x", "of another tool")
		err = staging.Commit()
		if fault.KindOf(err) != fault.Output || !strings.Contains(err.Error(), "has appeared") {
			t.Errorf("%v", err)
		}
		if diff := cmp.Diff(map[string]string{"/x": "of another tool"}, m.Tree()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCommitRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		write func(s *fsx.Staging) error
		text  string
	}{
		{"a file that is open", func(s *fsx.Staging) error { _, err := s.Create("x"); return err }, "still open"},
		{"no file", func(s *fsx.Staging) error { return nil }, "not staged"},
		{"companions alone", func(s *fsx.Staging) error {
			w, err := s.Create("x.json")
			if err != nil {
				return err
			}
			return w.Close()
		}, "not staged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := memfs.New()
			s, err := fsx.Stage(m, "/x", fsx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.write(s); err != nil {
				t.Fatal(err)
			}
			if err := s.Commit(); fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
			if len(m.Tree()) != 0 {
				t.Errorf("left over: %q", m.Tree())
			}
		})
	}
}

func TestNamesOfStagedFiles(t *testing.T) {
	s, err := fsx.Stage(memfs.New(), "/x", fsx.Options{Directory: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../y", "/y", "a/b", ""} {
		if _, err := s.Create(name); fault.KindOf(err) != fault.Internal {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Files written at the same time, in pieces below and above the buffer's size.
func TestDigests(t *testing.T) {
	m := memfs.New()
	s, err := fsx.Stage(m, "/x", fsx.Options{Directory: true})
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string][]int{"empty": nil, "small": {1, 2, 3}, "large": {1 << 20, 5, 3 << 20, 1<<20 - 5}}
	var group sync.WaitGroup
	for name, pieces := range contents {
		group.Go(func() {
			w, err := s.Create(name)
			if err != nil {
				t.Error(err)
				return
			}
			for i, n := range pieces {
				if _, err := w.Write(slices.Repeat([]byte{byte(i)}, n)); err != nil {
					t.Error(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	files := s.Files()
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if len(files) != len(contents) {
		t.Errorf("%d files", len(files))
	}
	for _, f := range files {
		data := m.Tree()["/x/"+f.Name]
		sum := sha256.Sum256([]byte(data))
		want := fsx.Written{Name: f.Name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
		if f != want {
			t.Errorf("noted %v, on the disk %v", f, want)
		}
	}
}

// A disk that fills in the midst of a file: Write and Close both say so.
func TestDiskFillsUp(t *testing.T) {
	for at := 1; at < 9; at++ {
		m := memfs.New()
		s, err := fsx.Stage(m, "/x", fsx.Options{Directory: true})
		if err != nil {
			t.Fatal(err)
		}
		m.Fail(memfs.Failure{At: m.Ops() + 1 + at, Err: syscall.ENOSPC, After: true})
		w, err := s.Create("shard")
		if err != nil {
			t.Fatal(err)
		}
		zeros := make([]byte, 1<<20+1)
		for range 6 {
			if _, err = w.Write(zeros); err != nil {
				break
			}
		}
		closed := w.Close()
		if fault.KindOf(closed) != fault.Resource || err != nil && fault.KindOf(err) != fault.Resource {
			t.Errorf("write: %v, close: %v", err, closed)
		}
		if len(s.Files()) != 0 {
			t.Errorf("noted as written: %v", s.Files())
		}
		m.Fail(memfs.Failure{})
		if err := s.Abort(); err != nil || len(m.Tree()) != 0 {
			t.Errorf("%v; left over: %d entries", err, len(m.Tree()))
		}
	}
}

func TestHints(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind fault.Kind
		hint string
	}{
		{syscall.ENOSPC, fault.Resource, "free some space"},
		{syscall.EMFILE, fault.Resource, "open files"},
		{syscall.EROFS, fault.Output, "may write to"},
		{syscall.EACCES, fault.Output, "may write to"},
		{syscall.ENAMETOOLONG, fault.Output, "shorter name"},
		{syscall.EXDEV, fault.Output, "local disk"},
		{io.ErrShortWrite, fault.Output, "check the disk"},
	} {
		m := memfs.New()
		m.Fail(memfs.Failure{At: 2, Err: fmt.Errorf("wrapped: %w", c.err)})
		_, err := fsx.Stage(m, "/x", fsx.Options{})
		if f := fault.Of(err); f.Kind != c.kind || !strings.Contains(f.Hint, c.hint) || !errors.Is(err, c.err) {
			t.Errorf("%v: %v fault with the hint %q: %v", c.err, f.Kind, f.Hint, err)
		}
	}
}
