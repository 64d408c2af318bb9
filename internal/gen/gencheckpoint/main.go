// Command gencheckpoint writes a large compact checkpoint to measure with:
//
//	go run ./internal/gen/gencheckpoint -o big.pt -params 42e6 -world 2
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/pickle"
	"gefenckpt/format/torchfile"
	"gefenckpt/internal/gen"
)

func main() {
	out := flag.String("o", "", "file to write")
	params := flag.Float64("params", 42e6, "number of parameters")
	one := flag.Float64("one", 0, "elements of one more, large matrix")
	world := flag.Int("world", 2, "ranks")
	period := flag.Int64("period", 512, "block length")
	flag.Parse()
	spec := gen.Decoder(1, *world, int64(*params-*one), *period)
	if *one > 0 {
		spec.Groups[0] = append(spec.Groups[0], gen.Param{Name: "large", Shape: []int64{int64(*one) / 1024, 1024}, Period: *period})
	}
	if err := write(*out, gen.Compact(spec)); err != nil {
		fmt.Fprintln(os.Stderr, "gencheckpoint:", err)
		os.Exit(1)
	}
}

func write(path string, c *checkpoint.Checkpoint) error {
	state, err := compact.Tree(c, checkpoint.Nested, nil)
	if err != nil {
		return err
	}
	archive, err := torchfile.New(pickle.NewDict("optimizer", state), torchfile.WriteOptions{})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := archive.WriteTo(w); err != nil {
		return err
	}
	return w.Flush()
}
