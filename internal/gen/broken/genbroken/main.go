// Genbroken writes the broken checkpoints of testdata/bad, and their list.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gefenckpt/internal/gen/broken"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genbroken DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "genbroken:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	work, err := os.MkdirTemp("", "genbroken")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	sound, err := broken.NewSound(work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var list strings.Builder
	list.WriteString(broken.Head)
	for _, c := range broken.Cases() {
		path := filepath.Join(dir, c.Name)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := c.Make(sound, path); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		list.WriteString(c.Line())
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(list.String()), 0o666)
}
