package tensor

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gefenckpt/internal/fault"
)

func TestValidateNamesWhatIsWrong(t *testing.T) {
	one := func(c Chunk) []Chunk { return []Chunk{c} }
	row := func(from, n int64) Chunk {
		shape := []int64{n, 2}
		return Chunk{Offset: []int64{from, 0}, Shape: shape, Storage: Memory(make([]byte, n*2*4)), Stride: RowMajor(shape)}
	}
	whole := row(0, 4)
	with := func(change func(*Chunk)) []Chunk {
		c := row(0, 4)
		change(&c)
		return one(c)
	}
	for _, c := range []struct {
		name   string
		shape  []int64
		chunks []Chunk
		kind   fault.Kind
		text   string // "" if it is valid
	}{
		{"whole", []int64{4, 2}, one(whole), 0, ""},
		{"two chunks", []int64{4, 2}, []Chunk{row(1, 3), row(0, 1)}, 0, ""},
		{"an empty chunk at the end", []int64{4, 2}, []Chunk{row(0, 4), row(4, 0)}, 0, ""},
		{"0-dim", nil, one(Whole(nil, Memory(make([]byte, 4)))), 0, ""},
		{"empty, with strides past the storage", []int64{0, 9}, one(Chunk{Offset: []int64{0, 0}, Shape: []int64{0, 9}, Storage: Memory(nil), Stride: []int64{9, 5}}), 0, ""},
		{"expanded", []int64{1 << 40}, one(Chunk{Offset: []int64{0}, Shape: []int64{1 << 40}, Storage: Memory(make([]byte, 4)), Stride: []int64{0}}), 0, ""},
		{"huge stride of a single index", []int64{1, 2}, one(Chunk{Offset: []int64{0, 0}, Shape: []int64{1, 2}, Storage: Memory(make([]byte, 8)), Stride: []int64{math.MaxInt64, 1}}), 0, ""},
		{"negative dimension", []int64{-1}, nil, fault.Corrupt, "shape [-1]"},
		{"product past 63 bits", []int64{1 << 31, 1 << 31, 4}, nil, fault.Corrupt, "is no tensor's"},
		{"bytes past 63 bits", []int64{1 << 61}, nil, fault.Corrupt, "is no tensor's"},
		{"a hole", []int64{4, 2}, []Chunk{row(0, 1), row(2, 2)}, fault.Incomplete, "6 of the 8 elements"},
		{"no chunk", []int64{4, 2}, nil, fault.Incomplete, "0 of the 8 elements"},
		{"an overlap", []int64{4, 2}, []Chunk{row(0, 3), row(2, 2)}, fault.Corrupt, "overlaps chunk"},
		{"an overlap and a hole", []int64{4, 2}, []Chunk{row(0, 2), row(1, 2)}, fault.Corrupt, "overlaps chunk"},
		{"two scalars", nil, []Chunk{Whole(nil, Memory(make([]byte, 4))), Whole(nil, Memory(make([]byte, 4)))}, fault.Corrupt, "overlaps chunk"},
		{"chunk beyond the shape", []int64{3, 2}, one(whole), fault.Corrupt, "does not lie within the shape [3 2]"},
		{"chunk before the shape", []int64{4, 2}, with(func(c *Chunk) { c.Offset[0] = -1 }), fault.Corrupt, "does not lie within"},
		{"chunk of other dimensions", []int64{4, 2}, with(func(c *Chunk) { c.Shape = []int64{8} }), fault.Corrupt, "does not lie within"},
		{"strides of other dimensions", []int64{4, 2}, with(func(c *Chunk) { c.Stride = []int64{1} }), fault.Corrupt, "1 strides"},
		{"start beyond the storage", []int64{4, 2}, with(func(c *Chunk) { c.Start = 1 }), fault.Corrupt, "storage of 8 elements"},
		{"negative start", []int64{4, 2}, with(func(c *Chunk) { c.Start = -1 }), fault.Corrupt, "offset -1"},
		{"negative stride", []int64{4, 2}, with(func(c *Chunk) { c.Stride = []int64{2, -1} }), fault.Corrupt, "strides [2 -1]"},
		{"stride beyond the storage", []int64{4, 2}, with(func(c *Chunk) { c.Stride[0] = 3 }), fault.Corrupt, "strides [3 1]"},
		{"stride that overflows", []int64{4, 2}, with(func(c *Chunk) { c.Stride[0] = math.MaxInt64 / 2 }), fault.Corrupt, "reaches beyond"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := (&Tensor{DType: Float32, Shape: c.shape, Chunks: c.chunks}).Validate()
			if c.text == "" {
				if err != nil {
					t.Errorf("%v, expected no error", err)
				}
				return
			}
			if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, expected %v with %q", err, c.kind, c.text)
			}
		})
	}
	content := &Tensor{DType: Float32, Shape: []int64{2}, Content: stored{FromInt64(1)}}
	if err := content.Validate(); err != nil {
		t.Errorf("content: %v", err)
	}
	content.Shape[0] = 3
	if err := content.Validate(); fault.KindOf(err) != fault.Internal {
		t.Errorf("content of another size: %v", err)
	}
}

// grid cuts a tensor into boxes of the sides.
func grid(shape, side []int64) []Box {
	boxes := []Box{{}}
	for d := range shape {
		var next []Box
		for _, b := range boxes {
			for at := int64(0); at < shape[d]; at += side[d] {
				next = append(next, Box{append(slices.Clone(b.Offset), at), append(slices.Clone(b.Shape), min(side[d], shape[d]-at))})
			}
		}
		boxes = next
	}
	return boxes
}

func TestOverlapIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.IntRange(1, 3).Draw(t, "dims")
		shape, side := make([]int64, dims), make([]int64, dims)
		for d := range shape {
			shape[d] = rapid.Int64Range(1, 12).Draw(t, "shape")
			side[d] = rapid.Int64Range(1, 4).Draw(t, "side")
		}
		boxes := rapid.Permutation(grid(shape, side)).Draw(t, "boxes")
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			b := &boxes[rapid.IntRange(0, len(boxes)-1).Draw(t, "which")]
			d := rapid.IntRange(0, dims-1).Draw(t, "axis")
			b.Shape[d] = rapid.Int64Range(0, 4).Draw(t, "new")
		}
		want := false
		for i, a := range boxes {
			for _, b := range boxes[:i] {
				common := !slices.Contains(a.Shape, 0) && !slices.Contains(b.Shape, 0)
				want = want || common && a.overlaps(b)
			}
		}
		a, b, found, known := Overlap(boxes)
		if !known || found != want || found && !a.overlaps(b) {
			t.Fatalf("overlap %v (known %v), expected %v: %v and %v", found, known, want, a, b)
		}
	})
}

func TestOverlapOfManyChunksIsQuick(t *testing.T) {
	for name, boxes := range map[string][]Box{
		"rows":    grid([]int64{100_000, 8}, []int64{1, 8}),
		"columns": grid([]int64{8, 100_000}, []int64{8, 1}),
		"mesh":    grid([]int64{300, 300}, []int64{1, 1}),
	} {
		start := time.Now()
		if _, _, found, known := Overlap(slices.Clone(boxes)); found || !known {
			t.Errorf("%s: found %v, known %v", name, found, known)
		}
		last := boxes[len(boxes)-1]
		_, _, found, known := Overlap(append(boxes, Box{last.Offset, last.Shape}))
		if !found || !known {
			t.Errorf("%s, one box twice: found %v, known %v", name, found, known)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
}

// Boxes around a common middle that no plane separates: few are compared each
// with each, too many are not.
func TestOverlapGivesUpWhereNoPlaneCuts(t *testing.T) {
	crosses := func(n int64) []Box {
		var boxes []Box
		for i := range n { // nested frames' upper and left sides: each crosses the planes of the next
			boxes = append(boxes, Box{[]int64{i, i}, []int64{1, 2*n - 2*i - 1}}, Box{[]int64{i + 1, i}, []int64{2*n - 2*i - 1, 1}},
				Box{[]int64{2*n - i - 0, i + 1}, []int64{1, 2*n - 2*i - 1}}, Box{[]int64{i, 2*n - i - 1}, []int64{2*n - 2*i, 1}})
		}
		return boxes
	}
	if _, _, found, known := Overlap(crosses(50)); found || !known {
		t.Errorf("few: found %v, known %v", found, known)
	}
	if _, _, found, known := Overlap(crosses(500)); found || known {
		t.Errorf("many: found %v, known %v", found, known)
	}
}
