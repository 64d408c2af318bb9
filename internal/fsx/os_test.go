package fsx_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"gefenckpt/internal/fsx"

	"github.com/google/go-cmp/cmp"
)

// onDisk makes a folder with the scenario's files, and returns the scenario for it.
func (s scenario) onDisk(t *testing.T) scenario {
	root := t.TempDir()
	write := func(path, contents string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(contents), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("/runs/neighbour", "not ours")
	for path, contents := range s.before {
		write(path, contents)
	}
	s.target = filepath.Join(root, s.target)
	return s
}

// readTree is what lies in a folder, as memfs.FS.Tree has it.
func readTree(t *testing.T, root string) map[string]string {
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := "/" + filepath.ToSlash(path[len(root)+1:])
		if d.IsDir() {
			out[name+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		out[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withoutExchange is the operating system's file system on a disk that cannot
// exchange names.
type withoutExchange struct{ fsx.OS }

func (withoutExchange) Exchange(string, string) error { return errors.ErrUnsupported }

func TestScenariosOnDisk(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			d := s.onDisk(t)
			var disk fsx.FS = fsx.OS{}
			if s.noExchange {
				disk = withoutExchange{}
			}
			staging, err := d.stage(disk)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fsx.Stage(disk, d.target, d.options); err == nil && runtime.GOOS != "windows" {
				t.Error("a second run may write the same target")
			}
			if err := staging.Commit(); err != nil {
				t.Fatal(err)
			}
			root := filepath.Dir(filepath.Dir(d.target))
			if diff := cmp.Diff(s.fresh(), readTree(t, root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRenameNewOnDisk(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, name := range []string{a, b} {
		if err := os.WriteFile(name, []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := (fsx.OS{}).RenameNew(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", b); err == nil {
		if err := (fsx.OS{}).RenameNew(a, b); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over a link to nowhere: %v", err)
		}
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := (fsx.OS{}).RenameNew(a, b); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(b); err != nil || string(data) != a {
		t.Errorf("%q, %v", data, err)
	}
}

// Nothing is created, and nothing written, through a symbolic link.
func TestLinksOnDisk(t *testing.T) {
	dir := t.TempDir()
	link, aim := filepath.Join(dir, "link"), filepath.Join(dir, "aim")
	if err := os.Symlink(aim, link); err != nil {
		if runtime.GOOS == "windows" {
			return // links are a privilege there
		}
		t.Fatal(err)
	}
	if f, err := (fsx.OS{}).Create(link); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create: %v, %v", f, err)
	}
	if _, err := fsx.Stage(fsx.OS{}, link, fsx.Options{Force: true}); err == nil {
		t.Error("the target may be a link")
	}
	if _, err := os.Lstat(aim); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the link points to: %v", err)
	}
}

func TestFreeOnDisk(t *testing.T) {
	free, err := fsx.OS{}.Free(t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err != nil || free <= 0 {
		t.Errorf("%d bytes, %v", free, err)
	}
}

func TestSyncDirOnDisk(t *testing.T) {
	dir := t.TempDir()
	if err := (fsx.OS{}).SyncDir(dir); err != nil {
		t.Error(err)
	}
	if err := (fsx.OS{}).SyncDir(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}
