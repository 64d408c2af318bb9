package gefen

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCodebookVectors(t *testing.T) {
	type vector struct {
		Name  string
		Parts []struct {
			Values array
			Period int
		}
		Codebook array
	}
	for _, v := range append(golden[vector](t, "codebook"), goldenSpec[vector](t, "codebook")...) {
		t.Run(v.Name, func(t *testing.T) {
			var h Histogram
			for _, p := range v.Parts {
				h.Add(p.Values.float32s(t), p.Period)
			}
			got, ok := LearnCodebook(&h)
			if !ok {
				t.Fatal("there is no codebook")
			}
			want := v.Codebook.codebook(t)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("codeword %d is %v, expected %v", i, got[i], want[i])
				}
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNoCodebookOfNothing(t *testing.T) {
	if book, ok := LearnCodebook(new(Histogram)); ok {
		t.Errorf("a codebook from %v to %v was learnt from nothing", book[0], book[255])
	}
}

func TestCodebookValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *Codebook)
		fault  string
	}{
		"evenly spaced":   {func(*Codebook) {}, ""},
		"repeated":        {func(c *Codebook) { c[100] = c[99] }, ""},
		"out of order":    {func(c *Codebook) { c[100] = c[98] }, "codeword 100 is"},
		"no number":       {func(c *Codebook) { c[100] = float32(math.NaN()) }, "codeword 100 is NaN"},
		"first no number": {func(c *Codebook) { c[0] = float32(math.NaN()) }, "codeword 0 is NaN"},
		"ends too early":  {func(c *Codebook) { c[255] = c[254] }, "reaches from -1 to"},
		"infinite":        {func(c *Codebook) { c[255] = float32(math.Inf(1)) }, "to +Inf"},
		"starts too low":  {func(c *Codebook) { c[0] = -1.5 }, "reaches from -1.5"},
	} {
		book := evenCodebook()
		c.change(&book)
		err := book.Validate()
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, expected %q", name, err, c.fault)
		}
	}
}

// evenCodebook has evenly spaced codewords.
func evenCodebook() (c Codebook) {
	for i := range c {
		c[i] = float32(2*i-255) / 255
	}
	return c
}

func TestDequantize(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	book := evenCodebook()
	for range 200 {
		period, blocks := 1+r.IntN(20), 1+r.IntN(20)
		index, magnitude := make([]uint8, period*blocks), make([]float32, blocks)
		for i := range index {
			index[i] = uint8(r.Uint32())
		}
		for i := range magnitude {
			magnitude[i] = r.Float32()
		}
		from := r.IntN(len(index))
		end := from + r.IntN(len(index)-from+1)
		got := make([]float32, end-from)
		book.Dequantize(got, index[from:end], magnitude[from/period:], period, from%period)
		for i, v := range got {
			if want := book[index[from+i]] * magnitude[(from+i)/period]; v != want {
				t.Fatalf("element %d of %d in blocks of %d, from %d on: %v, expected %v", i, len(index), period, from, v, want)
			}
		}
	}
}

func BenchmarkDequantize(b *testing.B) {
	const n, period = 1 << 16, 512
	book := evenCodebook()
	index, magnitude, m := make([]uint8, n), make([]float32, n/period), make([]float32, n)
	for i := range index {
		index[i] = uint8(splitmix(uint64(i)))
	}
	for b.Loop() {
		book.Dequantize(m, index, magnitude, period, 0)
	}
	perSecond(b, n)
}

// BenchmarkCodebook learns from 4096 active bins: of a bell shape, as momentum has,
// and all alike, which is the worst case, as nearly every division ties.
func BenchmarkCodebook(b *testing.B) {
	for _, name := range []string{"bell", "equal"} {
		_, weights := bins(rand.New(rand.NewPCG(5, 6)), Bins, histograms[name])
		var h Histogram
		for i, w := range weights {
			h[i] = int64(w)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				LearnCodebook(&h)
			}
		})
	}
}

// BenchmarkKMeans has as many points as several codebooks.
func BenchmarkKMeans(b *testing.B) {
	for _, n := range []int{255 * 8, 65534} {
		r := rand.New(rand.NewPCG(5, 6))
		points, weights := make([]float64, n), make([]float64, n)
		for i := range points {
			points[i] = math.Tanh(6*float64(2*i+1)/float64(n) - 6)
			weights[i] = math.Exp(-8 * r.Float64())
		}
		b.Run(map[int]string{255 * 8: "8 codebooks", 65534: "65534 points"}[n], func(b *testing.B) {
			for b.Loop() {
				KMeans(points, weights, 256)
			}
		})
	}
}
