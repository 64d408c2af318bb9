package gefen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNearestVectors(t *testing.T) {
	type vector struct {
		Name     string
		Codebook array
		Values   array
		Index    []int
	}
	type older struct {
		Name     string
		Codebook array
		Values   array
		Index    array
	}
	check := func(name string, c *Codebook, values []float32, want []uint8) {
		got := make([]uint8, len(values))
		NewQuantizer(c).Nearest(got, values)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: index of %v is %d, expected %d", name, values[i], got[i], want[i])
			}
		}
	}
	for _, v := range goldenSpec[vector](t, "nearest") {
		want := make([]uint8, len(v.Index))
		for i, n := range v.Index {
			want[i] = uint8(n)
		}
		check(v.Name, v.Codebook.codebook(t), v.Values.float32s(t), want)
	}
	for _, v := range golden[older](t, "nearest") {
		check(v.Name, v.Codebook.codebook(t), v.Values.float32s(t), v.Index.uint8s(t))
	}
}

// codebooks that are hard on a search: by name, the codewords between the ends.
var codebooks = map[string]func(r *rand.Rand, c []float32){
	"random": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = 2*r.Float32() - 1
		}
	},
	"repeated": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = float32(r.IntN(20))/10 - 1
		}
	},
	"padded": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = 0.25
		}
		c[0], c[1] = -0.5, 0
	},
	"neighbours": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = 2*r.Float32() - 1
			if i%3 > 0 {
				c[i] = math.Nextafter32(c[i-1], 2)
			}
		}
	},
	"many in a cell": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = (0.7 + 1e-3*r.Float32()) * float32(1-2*r.IntN(2))
		}
	},
	"all scales": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = float32(math.Exp(-90*r.Float64())) * float32(1-2*r.IntN(2))
		}
	},
	"subnormal": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = math.Float32frombits(r.Uint32N(600) | r.Uint32N(2)<<31)
		}
	},
	"ends only": func(r *rand.Rand, c []float32) {
		for i := range c {
			c[i] = float32(1 - 2*r.IntN(2))
		}
	},
}

func TestNearestEqualsItsDefinition(t *testing.T) {
	for name, fill := range codebooks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(3, 4))
			for range 3 {
				var c Codebook
				fill(r, c[1:255])
				c[0], c[255] = -1, 1
				slices.Sort(c[:])
				if err := c.Validate(); err != nil {
					t.Fatal(err)
				}
				values := nearestValues(r, &c)
				got := make([]uint8, len(values))
				NewQuantizer(&c).Nearest(got, values)
				for i, v := range values {
					if want := defined(&c, v); got[i] != want {
						t.Fatalf("index of %v (%#08x) is %d, expected %d", v, math.Float32bits(v), got[i], want)
					}
				}
			}
		})
	}
}

// defined is the index as it is defined, by a walk over the codewords.
func defined(c *Codebook, v float32) uint8 {
	i := 0
	for i < len(c) && !(c[i] >= v) {
		i++
	}
	left, right := max(i-1, 0), min(i, 255)
	if math.Abs(float64(v-c[left])) <= math.Abs(float64(v-c[right])) {
		return uint8(left)
	}
	return uint8(right)
}

// nearestValues are special values, those around every codeword and every middle of
// two, and random ones.
func nearestValues(r *rand.Rand, c *Codebook) []float32 {
	inf := float32(math.Inf(1))
	values := []float32{
		0, float32(math.Copysign(0, -1)), 1, -1, 2, -2, inf, -inf, math.MaxFloat32, -math.MaxFloat32,
		math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126,
		float32(math.NaN()), math.Float32frombits(0x7f800001), math.Float32frombits(0xff800001), math.Float32frombits(0xffffffff),
	}
	for i := range c {
		for _, v := range []float32{c[i], float32((float64(c[i]) + float64(c[max(i-1, 0)])) / 2)} {
			below, above := v, v
			values = append(values, v, -v)
			for range 3 {
				below, above = math.Nextafter32(below, -inf), math.Nextafter32(above, inf)
				values = append(values, below, above)
			}
			values = append(values, math.Float32frombits(math.Float32bits(v)&0xffff0000), math.Float32frombits(math.Float32bits(v)|0xffff))
		}
	}
	for range 20000 {
		values = append(values, 2*r.Float32()-1, math.Float32frombits(r.Uint32()))
	}
	return values
}

// FuzzNearest compares one value with the definition in a codebook made of bytes.
func FuzzNearest(f *testing.F) {
	f.Add([]byte{0, 0, 0, 63, 1, 0, 0, 63, 255, 255, 255, 62}, uint32(0x3f000000))
	f.Add([]byte{1, 0, 0, 0, 2, 0, 0, 128}, uint32(0x80000001))
	f.Fuzz(func(t *testing.T, data []byte, bits uint32) {
		var c Codebook
		n := 0
		for ; len(data) >= 4 && n < len(c)-2; data = data[4:] {
			v := math.Float32frombits(uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24)
			if v >= -1 && v <= 1 {
				c[n] = v
				n++
			}
		}
		c[254], c[255] = -1, 1
		slices.Sort(c[:])
		v := math.Float32frombits(bits)
		var got [1]uint8
		NewQuantizer(&c).Nearest(got[:], []float32{v})
		if want := defined(&c, v); got[0] != want {
			t.Errorf("index of %v is %d, expected %d", v, got[0], want)
		}
	})
}

func TestAbsMax(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for n := range 100 {
		x := make([]float32, n)
		want := float32(0)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			want = max(want, float32(math.Abs(float64(x[i]))))
		}
		if got := AbsMax(x); got != want {
			t.Errorf("largest of %d is %v, expected %v", n, got, want)
		}
		if n > 0 {
			x[r.IntN(n)] = float32(math.NaN())
			if got := AbsMax(x); got == got {
				t.Errorf("largest of %d with NaN is %v", n, got)
			}
		}
	}
}

func TestRequantize(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	book := evenCodebook()
	q := NewQuantizer(&book)
	for range 100 {
		period, blocks := 1+r.IntN(40), 1+r.IntN(10)
		m := make([]float32, period*blocks)
		for i := range m {
			m[i] = float32(r.NormFloat64()) * float32(r.IntN(2))
		}
		clear(m[:period])
		given := slices.Clone(m)
		index, magnitude := make([]uint8, len(m)), make([]float32, blocks)
		q.Requantize(index, magnitude, m, period)
		for i, v := range given {
			largest := AbsMax(given[i/period*period : (i/period+1)*period])
			want := defined(&book, 0)
			if largest > 0 {
				want = defined(&book, v/largest)
			}
			if index[i] != want || magnitude[i/period] != largest {
				t.Fatalf("element %d is codeword %d times %v, expected %d times %v", i, index[i], magnitude[i/period], want, largest)
			}
		}
	}
}

// momentumBook is a codebook learnt from a bell shape, and values for it.
func momentumBook(n, period int) (*Codebook, []float32) {
	r := rand.New(rand.NewPCG(7, 8))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	var h Histogram
	h.Add(x, period)
	book, _ := LearnCodebook(&h)
	return &book, x
}

func BenchmarkNearest(b *testing.B) {
	const n = 1 << 18
	book, x := momentumBook(n, 512)
	q := NewQuantizer(book)
	index := make([]uint8, n)
	q.Requantize(index, make([]float32, n/512), x, 512) // divides
	for b.Loop() {
		q.Nearest(index, x)
	}
	perSecond(b, n)
}

func BenchmarkRequantize(b *testing.B) {
	const n = 1 << 16
	book, x := momentumBook(n, 512)
	q := NewQuantizer(book)
	index, magnitude, m := make([]uint8, n), make([]float32, n/512), make([]float32, n)
	for b.Loop() {
		copy(m, x)
		q.Requantize(index, magnitude, m, 512)
	}
	perSecond(b, n)
}

func BenchmarkNewQuantizer(b *testing.B) {
	book, _ := momentumBook(1<<18, 512)
	for b.Loop() {
		NewQuantizer(book)
	}
}

func BenchmarkAbsMax(b *testing.B) {
	_, x := momentumBook(1<<16, 512)
	for b.Loop() {
		AbsMax(x)
	}
	perSecond(b, len(x))
}
