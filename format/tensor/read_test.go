package tensor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gefenckpt/internal/fault"
)

// counted counts the reads of a storage and their bytes.
type counted struct {
	Storage
	reads, bytes int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.Storage.ReadAt(p, off)
}

// sequence is n elements of size bytes whose first bytes count up.
func sequence(n, size int64) []byte {
	data := make([]byte, n*size)
	for i := range n {
		for b := range size {
			data[i*size+b] = byte(i >> (8 * min(b, 7)))
		}
	}
	return data
}

// lookup is element i of a tensor, found by its definition.
func lookup(t *Tensor, i int64) []byte {
	size := int64(t.DType.Size())
	at := make([]int64, len(t.Shape))
	for d := len(t.Shape) - 1; d >= 0; d-- {
		at[d], i = i%t.Shape[d], i/t.Shape[d]
	}
	for _, c := range t.Chunks {
		where, inside := c.Start, true
		for d := range at {
			k := at[d] - c.Offset[d]
			inside = inside && k >= 0 && k < c.Shape[d]
			where += k * c.Stride[d]
		}
		if inside {
			b := make([]byte, size)
			c.Storage.ReadAt(b, where*size)
			return b
		}
	}
	panic("no chunk holds the element")
}

var sizes = map[int64]DType{1: Uint8, 2: BFloat16, 4: Float32, 8: Int64, 16: Complex128}

// chunkOf draws a strided view of a storage of its own.
func chunkOf(t *rapid.T, offset, shape []int64, size int64) Chunk {
	c := Chunk{Offset: slices.Clone(offset), Shape: slices.Clone(shape), Stride: make([]int64, len(shape)), Start: rapid.Int64Range(0, 5).Draw(t, "start")}
	order := rapid.Permutation(axesOf(len(shape))).Draw(t, "order")
	step, last := int64(1), c.Start
	for _, d := range order {
		switch {
		case rapid.IntRange(0, 9).Draw(t, "expanded") == 0:
			continue
		case step < 1000 && rapid.IntRange(0, 4).Draw(t, "apart") == 0:
			step *= rapid.SampledFrom([]int64{2, 3, 700}).Draw(t, "gap")
		}
		c.Stride[d] = step
		last += max(shape[d]-1, 0) * step
		step *= max(shape[d], 1)
	}
	c.Storage = Memory(sequence(last+1+rapid.Int64Range(0, 3).Draw(t, "rest"), size))
	return c
}

func axesOf(n int) []int {
	axes := make([]int, n)
	for i := range axes {
		axes[i] = i
	}
	return axes
}

// cutAt draws a tiling of a box.
func cutAt(t *rapid.T, offset, shape []int64, pieces int, size int64) []Chunk {
	if pieces <= 1 || len(shape) == 0 {
		return []Chunk{chunkOf(t, offset, shape, size)}
	}
	d := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
	at := rapid.Int64Range(0, shape[d]).Draw(t, "cut")
	left, right, behind := slices.Clone(shape), slices.Clone(shape), slices.Clone(offset)
	left[d], right[d], behind[d] = at, shape[d]-at, offset[d]+at
	return append(cutAt(t, offset, left, pieces/2, size), cutAt(t, behind, right, pieces-pieces/2, size)...)
}

func drawTensor(t *rapid.T) *Tensor {
	size := rapid.SampledFrom([]int64{1, 2, 4, 8, 16}).Draw(t, "size")
	shape := rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 4).Draw(t, "shape")
	pieces := rapid.IntRange(1, 6).Draw(t, "pieces")
	chunks := cutAt(t, make([]int64, len(shape)), shape, pieces, size)
	if rapid.Bool().Draw(t, "shuffled") {
		chunks = rapid.Permutation(chunks).Draw(t, "chunks")
	}
	return &Tensor{DType: sizes[size], Shape: shape, Chunks: chunks}
}

func TestReadAtIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawTensor(t)
		if err := x.Validate(); err != nil {
			t.Fatal(err)
		}
		size := int64(x.DType.Size())
		from := rapid.Int64Range(0, x.Len()).Draw(t, "from")
		n := rapid.Int64Range(0, x.Len()-from).Draw(t, "n")
		got := make([]byte, n*size)
		if err := x.ReadAt(got, from); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if want := lookup(x, from+i); !bytes.Equal(got[i*size:(i+1)*size], want) {
				t.Fatalf("element %d is %x, expected %x", from+i, got[i*size:(i+1)*size], want)
			}
		}
		var all bytes.Buffer
		if n, err := x.Data().WriteTo(&all); err != nil || n != x.Bytes() || x.Data().Size() != n {
			t.Fatalf("content of %d bytes, expected %d: %v", n, x.Bytes(), err)
		}
		if !bytes.Equal(all.Bytes()[from*size:(from+n)*size], got) {
			t.Fatal("the content is not what ReadAt reads")
		}
	})
}

func TestReadAtReadsOnceWhereElementsFollowEachOther(t *testing.T) {
	const rows, width = 10_000, 3
	tensor := &Tensor{DType: Float32, Shape: []int64{rows, width}}
	data := sequence(rows*width, 4)
	var stores []*counted
	for row := int64(0); row < rows; row += 2 {
		s := &counted{Storage: Memory(data[row*width*4 : (row+2)*width*4])}
		stores = append(stores, s)
		shape := []int64{2, width}
		tensor.Chunks = append(tensor.Chunks, Chunk{Offset: []int64{row, 0}, Shape: shape, Storage: s, Stride: RowMajor(shape)},
			Chunk{Offset: []int64{row + 2, 0}, Shape: []int64{0, width}, Storage: Memory(nil), Stride: RowMajor(shape)})
	}
	got := make([]byte, 4*(2*width*3-2)) // one element short at both ends
	if err := tensor.ReadAt(got, 600*width+1); err != nil {
		t.Fatal(err)
	}
	if want := data[4*(600*width+1):][:len(got)]; !bytes.Equal(got, want) {
		t.Errorf("read %x, expected %x", got, want)
	}
	for i, s := range stores {
		if want := map[bool]int{true: 1}[i >= 300 && i < 303]; s.reads != want {
			t.Errorf("chunk %d was read %d times, expected %d", i, s.reads, want)
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { tensor.ReadAt(got, 600*width+1) }); allocs != 0 {
		t.Errorf("%v allocations per read, expected none", allocs)
	}
}

// A transposed matrix is read in as many calls as it takes, and not much more
// than its bytes; a column in one call per row.
func TestGatherReadsLittle(t *testing.T) {
	const rows, cols = 512, 2048
	s := &counted{Storage: Memory(sequence(rows*cols, 4))}
	view := func(shape, stride []int64) *Tensor {
		return &Tensor{DType: Float32, Shape: shape, Chunks: []Chunk{{Offset: make([]int64, len(shape)), Shape: shape, Storage: s, Stride: stride}}}
	}
	for _, c := range []struct {
		name       string
		t          *Tensor
		reads, max int
	}{
		{"transposed", view([]int64{cols, rows}, []int64{1, cols}), 2000, 8 << 20},
		{"column", view([]int64{rows, 1}, []int64{cols, 1}), rows, rows * 4},
		{"every second", view([]int64{rows * cols / 2}, []int64{2}), 20, rows * cols * 4},
		{"expanded", view([]int64{1000, 1000}, []int64{0, 0}), 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.reads, s.bytes = 0, 0
			if err := c.t.ReadAt(make([]byte, c.t.Bytes()), 0); err != nil {
				t.Fatal(err)
			}
			if s.reads > c.reads || s.bytes > c.max {
				t.Errorf("%d reads of %d bytes, expected at most %d of %d", s.reads, s.bytes, c.reads, c.max)
			}
		})
	}
}

// failing fails after so many bytes.
type failing struct{ Size_, good int64 }

var errDisk = errors.New("disk on fire")

func (f *failing) Size() int64 { return f.Size_ }

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.good {
		return 0, errDisk
	}
	return len(p), nil
}

func TestErrorsOfStorageComeThrough(t *testing.T) {
	broken := &failing{64, 32}
	rows := func(s Storage, row int64) Chunk {
		return Chunk{Offset: []int64{row, 0}, Shape: []int64{2, 4}, Storage: s, Stride: []int64{4, 1}}
	}
	for name, x := range map[string]*Tensor{
		"contiguous": {DType: Float32, Shape: []int64{4, 4}, Chunks: []Chunk{Whole([]int64{4, 4}, broken)}},
		"rows":       {DType: Float32, Shape: []int64{4, 4}, Chunks: []Chunk{rows(Memory(make([]byte, 32)), 0), rows(&failing{32, 0}, 2)}},
		"strided":    {DType: Float32, Shape: []int64{4, 4}, Chunks: []Chunk{{Offset: []int64{0, 0}, Shape: []int64{4, 4}, Storage: broken, Stride: []int64{1, 4}}}},
	} {
		if err := x.ReadAt(make([]byte, 64), 0); !errors.Is(err, errDisk) {
			t.Errorf("%s: %v, expected %v", name, err, errDisk)
		}
		if _, err := x.Data().WriteTo(io.Discard); !errors.Is(err, errDisk) {
			t.Errorf("%s, as content: %v, expected %v", name, err, errDisk)
		}
	}
	short := FromBytes(Float32, []int64{4}, make([]byte, 12))
	if err := short.ReadAt(make([]byte, 16), 0); fault.KindOf(err) != fault.Corrupt {
		t.Errorf("a storage that ends early: %v, expected a corrupt fault", err)
	}
}

func TestReadAtRefusesRangesOutside(t *testing.T) {
	x := FromFloat32s([]int64{2, 2}, []float32{1, 2, 3, 4})
	for _, c := range []struct{ n, from int64 }{{4, 4}, {8, 3}, {4, -1}, {3, 0}, {20, 0}, {4, math.MaxInt64}} {
		if err := x.ReadAt(make([]byte, c.n), c.from); fault.KindOf(err) != fault.Internal {
			t.Errorf("%d bytes from %d: %v, expected an internal fault", c.n, c.from, err)
		}
	}
}

func TestAsStorageReadsAnyRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 3).Draw(t, "shape")
		x := &Tensor{DType: Uint8, Shape: shape, Chunks: cutAt(t, make([]int64, len(shape)), shape, rapid.IntRange(1, 3).Draw(t, "pieces"), 1)}
		want, err := x.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		s := x.AsStorage()
		got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()+10))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %x, expected %x: %v", got, want, err)
		}
		off := rapid.Int64Range(-1, s.Size()+1).Draw(t, "off")
		p := make([]byte, rapid.Int64Range(1, s.Size()+1).Draw(t, "n"))
		n, err := s.ReadAt(p, off)
		inside := off >= 0 && off < s.Size()
		switch {
		case !inside && (n != 0 || err != io.EOF):
			t.Fatalf("outside: %d, %v", n, err)
		case inside && (n != min(len(p), len(want)-int(off)) || !bytes.Equal(p[:n], want[off:][:n]) || (err == io.EOF) != (n < len(p))):
			t.Fatalf("at %d: %d, %v", off, n, err)
		}
	})
}

func TestSmallTensors(t *testing.T) {
	for _, c := range []struct {
		d    DType
		data []byte
		want float64
	}{
		{Float32, []byte{0, 0, 0xc0, 0x3f}, 1.5},
		{Float64, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, -1.5},
		{BFloat16, []byte{0x80, 0x3f}, 1},
		{Int64, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -2},
		{Int32, []byte{1, 1, 0, 0}, 257},
		{Int16, []byte{0xff, 0xff}, -1},
		{Int8, []byte{0x80}, -128},
		{Uint8, []byte{0x80}, 128},
		{Bool, []byte{1}, 1},
	} {
		for _, shape := range [][]int64{{}, {1}, {1, 1}} {
			if got, err := FromBytes(c.d, shape, c.data).Scalar(); got != c.want || err != nil {
				t.Errorf("%s %v: %v, expected %v (%v)", c.d, shape, got, c.want, err)
			}
		}
	}
	if got, err := FromInt64(-7).Scalar(); got != -7 || err != nil {
		t.Errorf("FromInt64: %v, %v", got, err)
	}
	if got, err := FromFloat32s([]int64{2}, []float32{-0.5, 3}).Float32s(); err != nil || !slices.Equal(got, []float32{-0.5, 3}) {
		t.Errorf("Float32s: %v, %v", got, err)
	}
	for name, c := range map[string]struct {
		err  error
		kind fault.Kind
	}{
		"scalar of two":        {second(FromFloat32s([]int64{2}, []float32{1, 2}).Scalar()), fault.Corrupt},
		"scalar of complex":    {second(FromBytes(Complex64, nil, make([]byte, 8)).Scalar()), fault.Unsupported},
		"floats of another":    {second(FromInt64(1).Float32s()), fault.Corrupt},
		"more than is allowed": {second((&Tensor{DType: Uint8, Shape: []int64{smallTensor + 1}}).ReadAll()), fault.Resource},
	} {
		if c.err == nil || fault.KindOf(c.err) != c.kind {
			t.Errorf("%s: %v, expected %v", name, c.err, c.kind)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func BenchmarkRead(b *testing.B) {
	const side = 2048
	s := Memory(make([]byte, side*side*4))
	for _, c := range []struct {
		name   string
		stride []int64
	}{{"contiguous", []int64{side, 1}}, {"transposed", []int64{1, side}}} {
		shape := []int64{side, side}
		x := &Tensor{DType: Float32, Shape: shape, Chunks: []Chunk{{Offset: []int64{0, 0}, Shape: shape, Storage: s, Stride: c.stride}}}
		b.Run(fmt.Sprint(c.name), func(b *testing.B) {
			b.SetBytes(x.Bytes())
			for b.Loop() {
				if _, err := x.Data().WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
