package dense_test

import (
	"bytes"
	"context"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dense"
	"gefenckpt/format/moments"
	"gefenckpt/format/tensor"
)

func recovered(t *testing.T, c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, *dense.Found) {
	t.Helper()
	out, found, err := dense.Recover(context.Background(), c, 2)
	if err != nil {
		t.Fatal(err)
	}
	return out, found
}

func readAll(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	data, err := x.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What GefenDCPState expanded is found again: every rank's blocks, magnitudes and
// second moments to the byte, and the codewords that are in use.
func TestRecoverFindsWhatGefenXExpanded(t *testing.T) {
	for _, name := range []string{"plain-2", "plain-4", "uneven-3", "bf16-2", "fsdp-2"} {
		t.Run(name, func(t *testing.T) {
			want := open(t, checkpoints+name+"/full.pt")
			got, found := recovered(t, open(t, checkpoints+name+"/dcp_dense"))
			if found.Explained != found.Elements || found.Elements == 0 || found.Short != 0 || got.World != want.World {
				t.Fatalf("%+v of %d ranks", found, got.World)
			}
			off, used := 0, 0
			for r := range want.Ranks {
				book, true_ := codebook(t, got.Ranks[r].Codebook), codebook(t, want.Ranks[r].Codebook)
				for p := range want.Params {
					a, b := got.Ranks[r].Shards[p].State, want.Ranks[r].Shards[p].State
					if (a == nil) != (b == nil) {
						t.Fatalf("rank %d, %s: one side has no state", r, want.Params[p].Name)
					}
					if a == nil {
						continue
					}
					if a.Period != b.Period || a.Step != b.Step || a.VmeanStep != b.VmeanStep {
						t.Errorf("rank %d, %s: blocks of %d, expected %d", r, want.Params[p].Name, a.Period, b.Period)
						continue
					}
					if !bytes.Equal(readAll(t, a.Magnitude), readAll(t, b.Magnitude)) || !bytes.Equal(readAll(t, a.Vmean), readAll(t, b.Vmean)) {
						t.Errorf("rank %d, %s: magnitudes or second moments differ", r, want.Params[p].Name)
					}
					theirs := readAll(t, b.Index)
					for i, code := range readAll(t, a.Index) {
						used++
						if book[code] != true_[theirs[i]] {
							off++
						}
					}
				}
			}
			// A codeword that few elements use is known to a few values of float32.
			if off > used/10 {
				t.Errorf("%d of %d elements have another codeword", off, used)
			}
		})
	}
}

func codebook(t *testing.T, x *tensor.Tensor) []float32 {
	t.Helper()
	book, err := moments.Codebook(x)
	if err != nil {
		t.Fatal(err)
	}
	return book[:]
}
