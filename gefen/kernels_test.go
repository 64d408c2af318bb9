package gefen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func widened(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func ints64(n []int) []int64 {
	out := make([]int64, len(n))
	for i, v := range n {
		out[i] = int64(v)
	}
	return out
}

func TestPairwiseSumVectors(t *testing.T) {
	type vector struct {
		In      array
		Lengths []int `json:"prefix_lengths"`
		Sums    array
	}
	for _, v := range goldenSpec[vector](t, "numpy_sum") {
		x := v.In.float64s(t)
		for i, want := range v.Sums.float64s(t) {
			if got := pairwise(x[:v.Lengths[i]]); got != want {
				t.Errorf("sum of %d: %v, expected %v", v.Lengths[i], got, want)
			}
		}
	}
}

func TestPeriodVectors(t *testing.T) {
	type vector struct {
		Name       string
		X          array
		Shape      []int
		ParamShape []int `json:"parameter_shape"`
		Divisors   []int
		Err        array
		BlockError array `json:"block_error"`
		Period     int
	}
	check := func(v vector, shape []int, errors array) {
		t.Run(v.Name, func(t *testing.T) {
			x := widened(v.X.float32s(t))
			scratch := make([]float64, len(x))
			for i, want := range errors.float64s(t) {
				if got := blockError(x, v.Divisors[i], scratch); got != want {
					t.Errorf("error at period %d: %v, expected %v", v.Divisors[i], got, want)
				}
			}
			got, err := FindPeriod(x, v.Name, ints64(shape), PeriodRule{})
			if err != nil || got != v.Period {
				t.Errorf("period %d (%v), expected %d", got, err, v.Period)
			}
		})
	}
	for _, v := range golden[vector](t, "period") {
		check(v, v.ParamShape, v.BlockError)
	}
	for _, v := range goldenSpec[vector](t, "period") {
		check(v, v.Shape, v.Err)
	}
}

// literal is the search as the reference does it, divisor by divisor.
func literal(x []float64) int {
	scratch := make([]float64, len(x))
	best, bestScore, before := 1, 1e-12, 0.0
	for _, p := range Divisors(len(x)) {
		if p == 1 || p == len(x) {
			continue
		}
		e := blockError(x, p, scratch)
		if e-before < bestScore {
			best, bestScore = p, e-before
		}
		before = e
	}
	return best
}

// Screening never changes the result: random values of all scales, constant
// blocks, near-ties of a few ulps, zeros.
func TestSearchEqualsTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for n := range 4000 {
		size := 2 + r.IntN(400)
		if n%3 == 0 {
			size = []int{720, 1024, 840, 1536, 97, 2520}[r.IntN(6)]
		}
		run := 1 + r.IntN(16)
		scale := math.Exp(-30 * r.Float64())
		x := make([]float64, size)
		var values []float64
		var lengths []int
		for i := 0; i < size; {
			v := float32(r.ExpFloat64() * scale)
			switch n % 5 {
			case 1:
				v = float32(scale)
			case 2:
				v = float32(scale)
				for range r.IntN(3) {
					v = math.Nextafter32(v, 2)
				}
			case 3:
				v *= float32(r.IntN(2))
			}
			k := min(run, size-i)
			values, lengths = append(values, float64(v)), append(lengths, k)
			for range k {
				x[i] = float64(v)
				i++
			}
		}
		want := literal(x)
		if got := searchPeriod(x); got != want {
			t.Fatalf("case %d, %d elements: period %d, expected %d", n, size, got, want)
		}
		if got := searchRuns(values, lengths, size); got != want {
			t.Fatalf("case %d, %d elements in runs of %d: period %d, expected %d", n, size, run, got, want)
		}
	}
}

func TestPeriodRules(t *testing.T) {
	x := make([]float64, 64)
	for _, c := range []struct {
		name  string
		shape []int64
		rule  PeriodRule
		want  int
	}{
		{"b", []int64{64}, PeriodRule{}, 64},
		{"b", []int64{64}, PeriodRule{Force1D: true}, 1},
		{"w", []int64{8, 8}, PeriodRule{Force1D: true}, 64},
		{"w", []int64{8, 8}, PeriodRule{Force2D: true}, 1},
		{"Layers.Embed.weight", []int64{8, 8}, PeriodRule{Substrings: []string{"EMBED"}}, 1},
	} {
		if got, err := FindPeriod(x, c.name, c.shape, c.rule); err != nil || got != c.want {
			t.Errorf("%s %v %+v: period %d (%v), expected %d", c.name, c.shape, c.rule, got, err, c.want)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		if _, err := FindPeriod([]float64{1, bad}, "w", []int64{2}, PeriodRule{}); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

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
			if want := v.Codebook.codebook(t); !ok || got != *want {
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("codeword %d is %v, expected %v", i, got[i], want[i])
					}
				}
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

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

func TestReblockVector(t *testing.T) {
	type vector struct {
		Momentum  array
		Second    array `json:"second_moment"`
		Shape     []int
		Period    int
		Codebook  array
		Index     array `json:"m_codebook"`
		Magnitude array `json:"m_magnitude"`
		Vmean     array
	}
	for _, v := range goldenSpec[vector](t, "reblock") {
		m, second := v.Momentum.float32s(t), v.Second.float32s(t)
		period, err := FindPeriod(widened(second), "p", ints64(v.Shape), PeriodRule{})
		if err != nil || period != v.Period {
			t.Fatalf("period %d (%v), expected %d", period, err, v.Period)
		}
		var h Histogram
		h.Add(m, period)
		book, _ := LearnCodebook(&h)
		if book != *v.Codebook.codebook(t) {
			t.Fatal("the codebook differs")
		}
		index, magnitude, vmean := Reblock(NewQuantizer(&book), m, second, period)
		if !slices.Equal(index, v.Index.uint8s(t)) || !slices.Equal(magnitude, v.Magnitude.float32s(t)) || !slices.Equal(vmean, v.Vmean.float32s(t)) {
			t.Error("the block state differs")
		}
	}
}

// quadratic is the full search that LearnCodebook must agree with to the bit.
func quadratic(points, weights []float64, k int) []float64 {
	c := newClusters(points, weights, k, true)
	c.before, c.best = make([]float64, c.n), make([]float64, c.n)
	c.start = make([][]uint16, k+1)
	for e := range c.n {
		c.best[e] = c.cost(1, 0, e)
	}
	for layer := 2; layer <= k; layer++ {
		c.before, c.best = c.best, c.before
		c.start[layer] = make([]uint16, c.n)
		for e := layer - 1; e < c.n; e++ {
			c.best[e] = math.Inf(1)
			for s := layer - 1; s <= e; s++ {
				if v := c.before[s-1] + c.cost(layer, s, e); v < c.best[e] {
					c.best[e], c.start[layer][e] = v, uint16(s)
				}
			}
		}
	}
	return c.centres()
}

// histograms that are hard on ties and rounding.
var histograms = map[string]func(r *rand.Rand, i int) float64{
	"random":   func(r *rand.Rand, _ int) float64 { return float64(r.IntN(1000)) },
	"spiky":    func(r *rand.Rand, _ int) float64 { return math.Floor(math.Pow(10, 6.5*r.Float64())) },
	"grid":     func(_ *rand.Rand, i int) float64 { return float64((i + 1) % 2) },
	"equal":    func(*rand.Rand, int) float64 { return 7 },
	"mirror":   func(_ *rand.Rand, i int) float64 { return float64(min(i, 1) + min(i, 599-i)%13) },
	"sparse":   func(r *rand.Rand, _ int) float64 { return float64(r.IntN(4) / 3) },
	"gaussian": func(_ *rand.Rand, i int) float64 { x := float64(i-300) / 80; return math.Floor(1e6 * math.Exp(-x*x/2)) },
}

func TestDivideAndConquerEqualsTheFullSearch(t *testing.T) {
	for name, weight := range histograms {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 4 {
				var points, weights []float64
				for i := range 600 {
					if w := weight(r, i); w > 0 {
						points = append(points, centre(i*6+r.IntN(2)))
						weights = append(weights, w)
					}
				}
				for _, k := range []int{2, 3, 17, 64} {
					if len(points) < k {
						continue
					}
					c := newClusters(points, weights, k, true)
					c.solve()
					if got, want := c.centres(), quadratic(points, weights, k); !slices.Equal(got, want) {
						t.Fatalf("%d points, %d clusters: centres differ", len(points), k)
					}
				}
			}
		})
	}
}

func TestNearestEqualsItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 40 {
		var c Codebook
		for i := range c {
			c[i] = 2*r.Float32() - 1
			if n%2 == 1 && i%3 > 0 { // repeated and neighbouring codewords
				c[i] = c[i-1]
				if r.IntN(2) == 0 {
					c[i] = math.Nextafter32(c[i-1], 2)
				}
			}
		}
		c[0], c[255] = -1, 1
		slices.Sort(c[:])
		q := NewQuantizer(&c)
		values := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 2, -2, float32(math.Inf(1)), float32(math.Inf(-1)), math.SmallestNonzeroFloat32}
		for i := range c {
			for range 20 {
				v := c[i]
				if i > 0 {
					v = (c[i] + c[i-1]) / 2
				}
				for range r.IntN(3) {
					v = math.Nextafter32(v, 2)
				}
				values = append(values, v, math.Nextafter32(v, -2), c[i], math.Nextafter32(c[i], 2), math.Nextafter32(c[i], -2))
			}
		}
		for range 20000 {
			values = append(values, 2*r.Float32()-1, math.Float32frombits(r.Uint32()))
		}
		values = slices.DeleteFunc(values, func(v float32) bool { return v != v })
		got := make([]uint8, len(values))
		q.Nearest(got, values)
		for i, v := range values {
			if want := c.nearest(v); got[i] != want {
				t.Fatalf("codebook %d: index of %v is %d, expected %d", n, v, got[i], want)
			}
		}
	}
}

func TestKMeansKeepsFewPoints(t *testing.T) {
	points := []float64{-1, -0.25, 0.5, 1}
	if got, cost := KMeans(points, []float64{1, 2, 3, 4}, 256); !slices.Equal(got, points) || cost != 0 {
		t.Errorf("centres %v at cost %v", got, cost)
	}
}

func BenchmarkCodebook(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	var h Histogram
	for i := range h {
		x := float64(i-Bins/2) / 700
		h[i] = int64(1e5*math.Exp(-x*x/2)) + int64(r.IntN(20)) + 1
	}
	for b.Loop() {
		LearnCodebook(&h)
	}
}

func BenchmarkNearest(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	var h Histogram
	x := make([]float32, 1<<20)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	h.Add(x, 512)
	book, _ := LearnCodebook(&h)
	q := NewQuantizer(&book)
	for at := 0; at < len(x); at += 512 {
		normalize(x[at : at+512])
	}
	index := make([]uint8, len(x))
	b.SetBytes(int64(len(x)))
	for b.Loop() {
		q.Nearest(index, x)
	}
}

func BenchmarkPeriodOfRuns(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	value, length := make([]float64, 1<<14), make([]int, 1<<14)
	for i := range value {
		value[i], length[i] = float64(float32(r.ExpFloat64())), 256
	}
	b.SetBytes(int64(len(value) * 256))
	for b.Loop() {
		searchRuns(value, length, len(value)*256)
	}
}

func BenchmarkPeriod(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	x := make([]float64, 1<<18)
	for i := range x {
		v := r.NormFloat64()
		x[i] = v * v
	}
	b.SetBytes(int64(len(x)))
	for b.Loop() {
		searchPeriod(x)
	}
}
