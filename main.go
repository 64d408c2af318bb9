// Command gefenckpt moves checkpoints of the Gefen optimizer between forms and
// cluster shapes, and proves that training continues.
package main

import (
	"os"

	"gefenckpt/cmd"
)

func main() {
	os.Exit(cmd.Main(os.Args[1:], os.Stdout, os.Stderr))
}
