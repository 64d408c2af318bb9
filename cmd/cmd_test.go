package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const checkpoints = "../testdata/checkpoints/"

// call runs the command line.
func call(args ...string) (exit int, stdout, stderr string) {
	var out, err bytes.Buffer
	exit = run(context.Background(), args, &out, &err)
	return exit, out.String(), err.String()
}

// Each exit code, and what is said with it and on which stream.
func TestExitCodes(t *testing.T) {
	folder := t.TempDir()
	existing := filepath.Join(folder, "existing.pt")
	truncated := filepath.Join(folder, "truncated.pt")
	data, err := os.ReadFile(checkpoints + "plain-2/full.pt")
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{existing: data, truncated: data[:len(data)/2]} {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	full, out := checkpoints+"plain-2/full.pt", filepath.Join(folder, "out.pt")
	for _, c := range []struct {
		args   []string
		exit   int
		stdout string
		stderr string
	}{
		{[]string{"inspect", full}, 0, "2 ranks", ""},
		{[]string{"inspect", full, "--only", "embed"}, 0, "embed.weight", ""},
		{[]string{"--version"}, 0, "gefenckpt", ""},
		{[]string{"--help"}, 0, "Exit codes", ""},
		{nil, 0, "Available Commands", ""},
		{[]string{"inspct", full}, 2, "", "did you mean inspect?"},
		{[]string{"inspect"}, 2, "", "accepts 1 arg"},
		{[]string{"inspect", full, "--pram"}, 2, "", "unknown flag"},
		{[]string{"convert", full, out}, 2, "", "--to is missing"},
		{[]string{"convert", full, out, "--to", "sparse"}, 2, "", "none of compact, dense, native"},
		{[]string{"convert", full, out, "--to", "dense"}, 2, "", "name a directory"},
		{[]string{"convert", full, out, "--to", "compact", "--max-memory", "lots"}, 2, "", "max-memory"},
		{[]string{"reshard", full, out}, 2, "", "--to is missing"},
		{[]string{"reshard", full, out, "--to", "4", "--max-growth", "-1"}, 2, "", "max-growth"},
		{[]string{"inspect", folder + "/none"}, 3, "", "nothing at this path"},
		{[]string{"inspect", truncated}, 4, "", "no zip end record"},
		{[]string{"inspect", checkpoints + "plain-2/continuation.pt"}, 5, "", "recording of gradients"},
		{[]string{"convert", checkpoints + "muon-approx-2/full.pt", out, "--to", "native"}, 5, "", "muon"},
		{[]string{"reshard", checkpoints + "native-block-1/full.pt", out, "--to", "2"}, 5, "", "convert --to compact --world M"},
		{[]string{"verify", full, checkpoints + "plain-4/full.pt"}, 6, "NOT FAITHFUL", "differs"},
		{[]string{"convert", full, existing, "--to", "compact"}, 7, "", "--force"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			exit, stdout, stderr := call(c.args...)
			if exit != c.exit || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit %d, expected %d\nstdout: %s\nstderr: %s", exit, c.exit, stdout, stderr)
			}
			if exit == 0 && stderr != "" {
				t.Errorf("stderr: %s", stderr)
			}
		})
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a failed command left an output")
	}
}

// With --json stdout is one object, of a failure too.
func TestJSON(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct {
		args   []string
		fields []string
	}{
		{[]string{"inspect", checkpoints + "plain-2/full.pt"},
			[]string{"form", "container", "world", "global_step", "optimizer", "parameters", "groups", "bytes_per_parameter", "other"}},
		{[]string{"inspect", checkpoints + "hybrid-approx-2/full.pt"}, []string{"halves"}},
		{[]string{"convert", checkpoints + "plain-2/full.pt", folder + "/dense", "--to", "dense"},
			[]string{"source", "target", "bytes_in", "bytes_out", "bytes_per_parameter", "momentum_rel_l2", "second_moment_rel_l2", "parameters"}},
		{[]string{"reshard", checkpoints + "plain-2/full.pt", folder + "/3.pt", "--to", "3"}, []string{"fidelity", "parameters", "files"}},
		{[]string{"verify", checkpoints + "plain-2/full.pt", folder + "/3.pt"}, []string{"ok", "level", "measured", "allowed", "parameters"}},
		{[]string{"verify", folder + "/3.pt", "--digests"}, []string{"ok", "level"}},
		{[]string{"config"}, []string{"settings"}},
		{[]string{"inspect", folder + "/none"}, nil},
	} {
		_, stdout, stderr := call(append(c.args, "--json")...)
		var object map[string]any
		if err := json.Unmarshal([]byte(stdout), &object); err != nil || stderr != "" {
			t.Errorf("%v: %v\nstdout: %s\nstderr: %s", c.args, err, stdout, stderr)
			continue
		}
		for _, field := range append(c.fields, "schema", "command", "warnings", "errors") {
			if _, ok := object[field]; !ok {
				t.Errorf("%v: no %q", c.args, field)
			}
		}
	}
}

// The command line wins over the environment, that over the file, that over the
// default; and config says so.
func TestSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	origin := func(name string, args ...string) string {
		_, stdout, stderr := call(append([]string{"config"}, args...)...)
		for _, line := range strings.Split(stdout, "\n") {
			if f := strings.Fields(line); len(f) > 1 && f[0] == name {
				return strings.Join(f[1:], " ")
			}
		}
		return "not found: " + stdout + stderr
	}
	for _, c := range []struct {
		file, env, want string
	}{
		{"", "", "5% default"},
		{"max-growth: 7%", "", "7% file gefenckpt.yaml"},
		{"max-growth: 7%", "9%", "9% environment GEFENCKPT_MAX_GROWTH"},
	} {
		if c.file != "" {
			if err := os.WriteFile("gefenckpt.yaml", []byte(c.file), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if c.env != "" {
			t.Setenv("GEFENCKPT_MAX_GROWTH", c.env)
		}
		if got := origin("max-growth"); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if err := os.WriteFile("gefenckpt.yaml", []byte("max-grwoth: 7%"), 0o666); err != nil {
		t.Fatal(err)
	}
	if exit, _, stderr := call("config"); exit != 2 || !strings.Contains(stderr, "max-grwoth") {
		t.Errorf("a mistyped setting: exit %d, %s", exit, stderr)
	}
}
