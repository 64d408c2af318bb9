package dense_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"gefenckpt/format"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/compact"
	"gefenckpt/format/dcp"
	"gefenckpt/format/dense"
	"gefenckpt/format/moments"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

const checkpoints = "../../testdata/checkpoints/"

func open(t *testing.T, path string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := format.Open(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// plane is one moment of a parameter, whole. It is a tensor.Content.
type plane struct {
	c    *checkpoint.Checkpoint
	p    int
	read func(moments.Reader, []float32, int64) error
	n    int64
}

func (x plane) Size() int64 { return 4 * x.n }

func (x plane) WriteTo(w io.Writer) (int64, error) {
	r, err := moments.OfParameter(x.c, x.p)
	if err != nil {
		return 0, err
	}
	values := make([]float32, x.n)
	if err := x.read(r, values, 0); err != nil {
		return 0, err
	}
	data := make([]byte, 0, 4*x.n)
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	n, err := w.Write(data)
	return int64(n), err
}

// expanded is c as the tree of a dense directory that remembers c, its slots in
// one chunk each.
func expanded(t *testing.T, c *checkpoint.Checkpoint) *pickle.Dict {
	t.Helper()
	slots := make([]dense.Slot, len(c.Params))
	for p := range slots {
		n, _ := tensor.Volume(c.Params[p].Shape)
		whole := func(read func(moments.Reader, []float32, int64) error) []*tensor.Tensor {
			return []*tensor.Tensor{{DType: tensor.Float32, Shape: c.Params[p].Shape, Content: plane{c, p, read, n}}}
		}
		slots[p] = dense.Slot{Momentum: whole(moments.Reader.Momentum), SecondMoment: whole(moments.Reader.SecondMoment)}
		for _, rank := range c.Ranks {
			if s := rank.Shards[p].State; s != nil {
				slots[p].Initialized, slots[p].Step, slots[p].VmeanStep = true, s.Step, s.Step
			}
		}
	}
	d := dense.Tree(c, slots)
	origin, err := dense.Remember(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if origin == nil {
		t.Fatal("the checkpoint cannot be remembered")
	}
	d.Set(dense.KeyOrigin, origin)
	return pickle.NewDict("optimizer", d)
}

// writeDirectory writes a tree as a DCP directory.
func writeDirectory(t *testing.T, root pickle.Value) string {
	t.Helper()
	dir := t.TempDir()
	w, err := dcp.NewWriter(root, dcp.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, write func(io.Writer) error) {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range w.Files() {
		put(f.Name, func(b io.Writer) error { return w.WriteFile(i, b) })
	}
	put(".metadata", w.WriteMetadata)
	return dir
}

// archive is the bytes of c as a torch.save file.
func archive(t *testing.T, c *checkpoint.Checkpoint) []byte {
	t.Helper()
	root, err := compact.Tree(c, checkpoint.Raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.New(root, torchfile.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := f.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A dense directory of ours leads back to the very bytes of the compact
// checkpoint that it was made from.
func TestRestoreGivesBackEveryByte(t *testing.T) {
	for _, file := range []string{"plain-2/full.pt", "plain-4/raw.pt", "uneven-3/full.pt", "uneven-3/reshard_5/full.pt", "bf16-2/flat.pt",
		"default-2/full.pt", "plain-2/reshard_1/full.pt", "../../format/testdata/checkpoints/permuted/full.pt", "../../format/testdata/checkpoints/permuted-uneven/full.pt",
		"../../format/testdata/checkpoints/partly/raw.pt"} {
		t.Run(file, func(t *testing.T) {
			c := open(t, checkpoints+file)
			d := open(t, writeDirectory(t, expanded(t, c)))
			if d.Form != checkpoint.Dense || d.Origin == nil {
				t.Fatalf("opened as %s, origin %v", d.Form, d.Origin)
			}
			back, err := dense.Restore(d)
			if err != nil {
				t.Fatal(err)
			}
			for i := range back.Params {
				if back.Params[i].FQN != c.Params[i].FQN {
					t.Errorf("%q came back as %q", c.Params[i].FQN, back.Params[i].FQN)
				}
			}
			if !bytes.Equal(archive(t, back), archive(t, c)) {
				t.Error("the state that came back is another")
			}
		})
	}
}

// Indices that momentum and magnitude do not tell are stored: those of repeated
// codewords, and of blocks of zeros that no zero index stands for.
func TestUnclearIndicesAreStored(t *testing.T) {
	book := make([]float32, 256)
	for i := range book {
		book[i] = float32(i-100) / 200
	}
	book[0], book[255], book[201] = -1, 1, book[200]
	for name, c := range map[string]struct {
		index     []byte
		magnitude []float32
		stored    bool
	}{
		"clear":              {[]byte{0, 255, 3, 99}, []float32{0.5, 3}, false},
		"first of a pair":    {[]byte{0, 200, 3, 99}, []float32{0.5, 3}, false},
		"second of a pair":   {[]byte{0, 201, 3, 99}, []float32{0.5, 3}, true},
		"zeros as Gefen has": {[]byte{100, 100, 3, 99}, []float32{0, 3}, false},
		"other zeros":        {[]byte{0, 0, 3, 99}, []float32{0, 3}, true},
		"vanishing":          {[]byte{0, 255, 3, 4}, []float32{0.5, 1e-45}, true},
	} {
		t.Run(name, func(t *testing.T) {
			source := twoBlocks(book, c.index, c.magnitude)
			d := open(t, writeDirectory(t, expanded(t, source)))
			if _, stored := d.Origin.Get("slot_00000000.index"); stored != c.stored {
				t.Errorf("stored: %v", stored)
			}
			back, err := dense.Restore(d)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := back.Ranks[0].Shards[0].State.Index.ReadAll(); err != nil || !bytes.Equal(got, c.index) {
				t.Errorf("%v, %v; want %v", got, err, c.index)
			}
		})
	}
}

// twoBlocks is a checkpoint of one rank with one parameter of two blocks of two.
func twoBlocks(book []float32, index []byte, magnitude []float32) *checkpoint.Checkpoint {
	policy := false
	return &checkpoint.Checkpoint{
		Form: checkpoint.Compact, Optimizer: checkpoint.Gefen, World: 1, GlobalStep: 5, Deterministic: &policy,
		Mesh:   &checkpoint.Mesh{DeviceType: "cpu", Shape: []int64{1}, DimNames: []string{}, Ranks: []int64{0}},
		Groups: []checkpoint.Group{{Fields: pickle.NewDict("lr", 0.1), LR: 0.1, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, Params: []int{0}}},
		Params: []checkpoint.Param{{Name: "w", Shape: []int64{4}, DType: "torch.float32", Placement: checkpoint.Placement{Type: "Shard"}}},
		Ranks: []checkpoint.Rank{{Codebook: tensor.FromFloat32s([]int64{256}, book), Shards: []checkpoint.Shard{{LocalShape: []int64{4}, State: &checkpoint.State{
			Period: 2, Step: 5, VmeanStep: 5, FactoredStep: checkpoint.Absent, NormuonStep: checkpoint.Absent,
			Index:     tensor.FromBytes(tensor.Uint8, []int64{2, 2}, index),
			Magnitude: tensor.FromFloat32s([]int64{2, 1}, magnitude),
			Vmean:     tensor.FromFloat32s([]int64{2, 1}, []float32{1, 2}),
		}}}}},
	}
}

// What was remembered is believed only where it fits the slots.
func TestRestoreRefusesWhatDoesNotFit(t *testing.T) {
	integers := func(n ...int64) *tensor.Tensor {
		var data []byte
		for _, v := range n {
			data = binary.LittleEndian.AppendUint64(data, uint64(v))
		}
		return tensor.FromBytes(tensor.Int64, []int64{1, int64(len(n))}, data)
	}
	book := make([]float32, 256)
	for i := range book {
		book[i] = float32(i-128) / 128
	}
	book[255] = 1
	for name, c := range map[string]struct {
		key   string
		value pickle.Value
		kind  fault.Kind
		says  string
	}{
		"another version":     {"version", tensor.FromInt64(9), fault.Unsupported, "version"},
		"no codebooks":        {"codebooks", nil, fault.Corrupt, "codebooks"},
		"a period too long":   {"periods", integers(3), fault.Corrupt, "blocks of 3"},
		"periods of more":     {"periods", integers(2, 2), fault.Corrupt, "int64 [1 1]"},
		"too few magnitudes":  {"slot_00000000.magnitude", tensor.FromFloat32s([]int64{1}, []float32{1}), fault.Corrupt, "too few magnitudes"},
		"no description":      {"description", pickle.NewTuple(), fault.Corrupt, "description"},
		"indices that are no": {"stored_indices", tensor.FromBytes(tensor.Uint8, []int64{1, 1}, []byte{1}), fault.Corrupt, "too few indices"},
		"other magnitudes":    {"slot_00000000.magnitude", tensor.FromFloat32s([]int64{2}, []float32{0.3, 3}), fault.Corrupt, "slots were changed"},
	} {
		t.Run(name, func(t *testing.T) {
			root := expanded(t, twoBlocks(book, []byte{0, 255, 3, 99}, []float32{0.5, 3}))
			root, err := replaced(root, c.value, "optimizer", dense.KeyOrigin, c.key)
			if err != nil {
				t.Fatal(err)
			}
			back, err := dense.Restore(open(t, writeDirectory(t, root)))
			if err == nil {
				_, err = back.Ranks[0].Shards[0].State.Index.ReadAll()
			}
			if fault.KindOf(err) != c.kind || !bytes.Contains([]byte(err.Error()), []byte(c.says)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func replaced(root *pickle.Dict, value pickle.Value, keys ...string) (*pickle.Dict, error) {
	v, err := tree.Replace(root, value, tree.Keys(keys...)...)
	if err != nil {
		return nil, err
	}
	return v.(*pickle.Dict), nil
}

// A directory of Gefen-X remembers nothing.
func TestRestoreOfAnotherWriter(t *testing.T) {
	d := open(t, checkpoints+"plain-2/dcp_dense")
	if _, err := dense.Restore(d); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("%v", err)
	}
}
