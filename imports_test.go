package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// forbidden are packages that the project's own code has no use for: what goes
// around the type system or the memory model's rules, opens sockets, or starts
// processes.
var forbidden = []string{"C", "unsafe", "net", "net/http", "os/exec", "plugin", "encoding/gob"}

// brought are the forbidden packages that the libraries bring along. A library
// that brings another one shows here.
var brought = map[string][]string{
	"net":      {"github.com/go-viper/mapstructure/v2", "github.com/spf13/pflag"}, // IP addresses as flags and settings
	"net/http": {"github.com/schollz/progressbar/v3", "github.com/spf13/afero"},   // never called
	"os/exec":  {"github.com/spf13/cobra"},
}

// TestImports: our own packages import none of the forbidden packages, and the
// libraries only those that are known.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	got := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			switch {
			case !slices.Contains(forbidden, imported):
			case strings.HasPrefix(fields[0], "gefenckpt"):
				t.Errorf("%s imports %s", fields[0], imported)
			case imported != "unsafe": // libraries that speak to the system need it
				got[imported] = append(got[imported], fields[0])
			}
		}
		if strings.HasPrefix(fields[0], "gefenckpt/") {
			own++
		}
	}
	if own < 15 {
		t.Errorf("only %d packages of our own were seen", own)
	}
	for name, by := range got {
		slices.Sort(by)
		if !slices.Equal(by, brought[name]) {
			t.Errorf("%s is brought by %v, expected %v", name, by, brought[name])
		}
	}
}
