package gefen

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestReblockVector(t *testing.T) {
	type vector struct {
		Momentum  array
		Second    array `json:"second_moment"`
		Shape     []int64
		Period    int
		Codebook  array
		Index     array `json:"m_codebook"`
		Magnitude array `json:"m_magnitude"`
		Vmean     array
	}
	for _, v := range goldenSpec[vector](t, "reblock") {
		for workers := range 3 {
			params := []Dense{
				{Name: "empty", Shape: []int64{2, 8}},
				{Name: "p", Shape: v.Shape, Momentum: v.Momentum.float32s(t), Second: v.Second.float32s(t)},
			}
			book, blocks, err := Relearn(params, PeriodRule{}, workers)
			if err != nil {
				t.Fatal(err)
			}
			if *book != *v.Codebook.codebook(t) {
				t.Error("the codebook differs")
			}
			if blocks[0].Period != 0 {
				t.Errorf("a parameter without elements has blocks of %d", blocks[0].Period)
			}
			if got := blocks[1]; got.Period != v.Period || !slices.Equal(got.Index, v.Index.uint8s(t)) ||
				!slices.Equal(got.Magnitude, v.Magnitude.float32s(t)) || !slices.Equal(got.Vmean, v.Vmean.float32s(t)) {
				t.Errorf("the blocks of %d differ, expected those of %d", got.Period, v.Period)
			}
		}
	}
}

func TestRelearnWithoutElements(t *testing.T) {
	book, blocks, err := Relearn([]Dense{{Name: "p", Shape: []int64{2, 8}}}, PeriodRule{}, 1)
	if err != nil || book != nil || blocks[0].Period != 0 {
		t.Errorf("codebook %v, blocks %v (%v), expected none", book, blocks, err)
	}
}

func TestRelearnRefuses(t *testing.T) {
	nan := float32(math.NaN())
	for fault, p := range map[string]Dense{
		"2 momenta and 1 second": {Momentum: []float32{1, 2}, Second: []float32{1}},
		"magnitude NaN":          {Momentum: []float32{1, nan}, Second: []float32{1, 1}},
		"element 1 is NaN":       {Momentum: []float32{1, 2}, Second: []float32{1, nan}},
	} {
		if _, _, err := Relearn([]Dense{p}, PeriodRule{}, 1); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v, expected %q", err, fault)
		}
	}
}
