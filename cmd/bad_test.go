package cmd

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gefenckpt/internal/gen/broken"
)

const bad = "../testdata/bad/"

// Every broken checkpoint ends verify with its exit code, and says what is wrong;
// no command makes an output of one that is not sound.
func TestBrokenCheckpoints(t *testing.T) {
	cases := broken.Cases()
	if len(cases) < 40 {
		t.Errorf("there are %d, expected 40", len(cases))
	}
	folder := t.TempDir()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			exit, _, stderr := call("verify", bad+c.Name)
			if exit != c.Exit || !strings.Contains(stderr, c.Text) {
				t.Errorf("exit %d, expected %d with %q:\n%s", exit, c.Exit, c.Text, stderr)
			}
			if c.Exit != 0 && c.Exit != 2 && !strings.Contains(stderr, bad+c.Name) {
				t.Errorf("the checkpoint is not named: %s", stderr)
			}
			if exit, _, stderr := call("inspect", bad+c.Name); exit == 1 {
				t.Errorf("inspect: exit %d: %s", exit, stderr)
			}
			for _, to := range []string{"dense", "native", "compact"} {
				dst := filepath.Join(folder, c.Name+"-"+to)
				exit, _, stderr := call("convert", bad+c.Name, dst, "--to", to, "--container", map[string]string{"dense": "dcp"}[to]+map[string]string{"native": "pt", "compact": "pt"}[to], "--device-type", "cpu", "--world", map[string]string{"dense": "2", "native": "1", "compact": "2"}[to])
				_, err := os.Lstat(dst)
				switch {
				case exit == 1:
					t.Errorf("convert --to %s: an unexpected failure: %s", to, stderr)
				case exit != 0 && err == nil:
					t.Errorf("convert --to %s: exit %d, and an output is left", to, exit)
				case exit == 0 && c.Exit != 0:
					checkRejected(t, c, to, dst)
				}
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(folder, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

// checkRejected: what a conversion made all the same of a checkpoint that is not
// sound must not pass for one that is.
func checkRejected(t *testing.T, c broken.Case, to, dst string) {
	t.Helper()
	if exit, stdout, _ := call("verify", dst); exit == 0 {
		t.Errorf("convert --to %s makes a sound checkpoint of it: %s", to, stdout)
	}
}

// The files are those that the generator makes, and so is their list.
func TestBrokenCheckpointsHaveNoDrift(t *testing.T) {
	sound, err := broken.NewSound(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	list := broken.Head
	known := map[string]bool{"README.md": true}
	for _, c := range broken.Cases() {
		if err := c.Make(sound, filepath.Join(folder, c.Name)); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		list += c.Line()
		known[c.Name] = true
		err := filepath.WalkDir(filepath.Join(folder, c.Name), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, _ := filepath.Rel(folder, path)
			fresh, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if stored, err := os.ReadFile(bad + rel); err != nil || !bytes.Equal(stored, fresh) {
				t.Errorf("testdata/bad/%s is not what the generator makes (%v)", rel, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(bad + "README.md")
	if err != nil || string(stored) != list {
		t.Errorf("testdata/bad/README.md is not the list of the cases (%v)", err)
	}
	entries, err := os.ReadDir(bad)
	for _, e := range entries {
		if !known[e.Name()] {
			t.Errorf("testdata/bad/%s is made by no case", e.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}
