package convert

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/tensor"
)

func relL2(sums [2]float64) float64 {
	if sums[0] == 0 {
		return 0
	}
	return math.Sqrt(sums[0] / sums[1])
}

// samePlane compares two tensors by shape and bytes.
func samePlane(t *testing.T, item, plane string, got, want *tensor.Tensor) {
	t.Helper()
	if got == nil || want == nil {
		if got != want {
			t.Errorf("%s: %s is on one side only", item, plane)
		}
		return
	}
	x, err := got.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	y, err := want.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(x, y) {
		t.Errorf("%s: %s differs (%v and %v)", item, plane, got.Shape, want.Shape)
	}
}

// sameState compares two states in every field.
func sameState(t *testing.T, item string, got, want *checkpoint.State) {
	t.Helper()
	if got == nil || want == nil {
		if got != want {
			t.Errorf("%s: one side has no state", item)
		}
		return
	}
	if got.Period != want.Period || got.Step != want.Step || got.VmeanStep != want.VmeanStep {
		t.Errorf("%s: period %d and steps %d, %d; expected %d and %d, %d", item, got.Period, got.Step, got.VmeanStep, want.Period, want.Step, want.VmeanStep)
	}
	samePlane(t, item, checkpoint.KeyIndex, got.Index, want.Index)
	samePlane(t, item, checkpoint.KeyMagnitude, got.Magnitude, want.Magnitude)
	samePlane(t, item, checkpoint.KeyVmean, got.Vmean, want.Vmean)
}

// sameStates compares the states of all ranks, their codebooks included.
func sameStates(t *testing.T, item string, got, want *checkpoint.Checkpoint) {
	t.Helper()
	if len(got.Ranks) != len(want.Ranks) {
		t.Fatalf("%s: %d ranks, expected %d", item, len(got.Ranks), len(want.Ranks))
	}
	for r := range want.Ranks {
		samePlane(t, item, "codebook", got.Ranks[r].Codebook, want.Ranks[r].Codebook)
		for p := range want.Params {
			sameState(t, item+": "+want.Params[p].Name, got.Ranks[r].Shards[p].State, want.Ranks[r].Shards[p].State)
		}
	}
}
