// Package broken makes checkpoints that are wrong, one fault each, to see what is
// said about them. Equal versions of it make equal bytes.
package broken

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"gefenckpt/convert"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/gen"
)

// Case is one broken checkpoint.
type Case struct {
	Name string // of its file or directory
	What string // what is wrong with it
	Exit int    // of gefenckpt verify
	Text string // part of what it says
	Make func(s *Sound, path string) error
}

// Cases are all broken checkpoints.
func Cases() []Case {
	var out []Case
	for _, group := range [][]Case{files, states, directories, foreign} {
		out = append(out, group...)
	}
	return out
}

// Sound is the checkpoint that they are made from, in its forms.
type Sound struct {
	Compact []byte            // a torch.save file of two ranks
	Native  []byte            // a torch.save file of one process
	Dense   map[string][]byte // a directory of two ranks
}

// NewSound makes it; folder is a place to work in.
func NewSound(folder string) (*Sound, error) {
	spec := gen.Spec{Seed: 1, World: 2, Step: 7, Groups: [][]gen.Param{
		{{Name: "embed.weight", Shape: []int64{6, 8}, Period: 4}, {Name: "head.weight", Shape: []int64{6, 8}, Period: 8}},
		{{Name: "norm.weight", Shape: []int64{4}, Period: 2}},
	}}
	state, err := compact.Tree(gen.Compact(spec), checkpoint.Nested, nil)
	if err != nil {
		return nil, err
	}
	s := &Sound{Dense: map[string][]byte{}}
	if s.Compact, err = archive(pickle.NewDict("optimizer", state, "epoch", int64(3))); err != nil {
		return nil, err
	}
	src := filepath.Join(folder, "full.pt")
	if err := os.WriteFile(src, s.Compact, 0o666); err != nil {
		return nil, err
	}
	one, dense := filepath.Join(folder, "one.pt"), filepath.Join(folder, "dense")
	o := convert.Options{To: checkpoint.Native, Fidelity: convert.Lossless, Tool: "gefenckpt"}
	if _, err := convert.Run(context.Background(), src, one, o); err != nil {
		return nil, err
	}
	if s.Native, err = os.ReadFile(one); err != nil {
		return nil, err
	}
	o.To = checkpoint.Dense
	if _, err := convert.Run(context.Background(), src, dense, o); err != nil {
		return nil, err
	}
	for _, name := range []string{".metadata", "__0_0.distcp", "__1_0.distcp"} {
		if s.Dense[name], err = os.ReadFile(filepath.Join(dense, name)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// archive is a tree as torch.save writes it.
func archive(root pickle.Value) ([]byte, error) {
	f, err := torchfile.New(root, torchfile.WriteOptions{})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = f.WriteTo(&b)
	return b.Bytes(), err
}

// edited is an archive with the value at a path made another by edit.
func edited(data []byte, edit func(old pickle.Value) pickle.Value, path ...pickle.Value) ([]byte, error) {
	a, err := torchfile.Open(tensor.Memory(data), torchfile.Options{})
	if err != nil {
		return nil, err
	}
	root, err := replaced(a.Root(), edit, path...)
	if err != nil {
		return nil, err
	}
	return archive(root)
}

func replaced(root pickle.Value, edit func(old pickle.Value) pickle.Value, path ...pickle.Value) (pickle.Value, error) {
	old, err := tree.Get(root, path...)
	if err != nil {
		return nil, err
	}
	return tree.Replace(root, edit(old), path...)
}

// to makes any value another.
func to(v pickle.Value) func(pickle.Value) pickle.Value {
	return func(pickle.Value) pickle.Value { return v }
}

// without makes a dict that lacks a key.
func without(key string) func(pickle.Value) pickle.Value {
	return func(old pickle.Value) pickle.Value {
		d, _ := pickle.AsDict(old)
		out := &pickle.Dict{}
		for _, p := range d.Pairs {
			if p.Key != key {
				out.Set(p.Key, p.Value)
			}
		}
		return out
	}
}

// with makes a dict that has a key more, or another value of it.
func with(key string, v pickle.Value) func(pickle.Value) pickle.Value {
	return func(old pickle.Value) pickle.Value {
		out := without(key)(old).(*pickle.Dict)
		out.Set(key, v)
		return out
	}
}

// floats is a float32 tensor made another by its values.
func floats(edit func(x []float32)) func(pickle.Value) pickle.Value {
	return func(old pickle.Value) pickle.Value {
		t := old.(*tensor.Tensor)
		x, err := t.Float32s()
		if err != nil {
			panic(err)
		}
		edit(x)
		return tensor.FromFloat32s(t.Shape, x)
	}
}

// Head is the beginning of the list of all cases, Line a case's line in it.
const Head = `# Broken checkpoints

Made by ` + "`go run ./internal/gen/broken/genbroken testdata/bad`" + `; a test holds each to its exit
code of ` + "`gefenckpt verify`" + ` and to what is said.

| checkpoint | what is wrong | exit | says |
|---|---|---|---|
`

// Line is the case in the list.
func (c *Case) Line() string {
	return fmt.Sprintf("| %s | %s | %d | %s |\n", c.Name, c.What, c.Exit, c.Text)
}
