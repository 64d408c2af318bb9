package gefen

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// runsIn tells all runs apart.
func runsIn(x []float32) *runs {
	var r equal[float32]
	for _, v := range x {
		r.add(v, 1)
	}
	return newRuns(r.value, r.length)
}

// literalError is E(p) as it is defined.
func literalError(x []float32, p int) float64 {
	var variance []float64
	for at := 0; at < len(x); at += p {
		block := widened(x[at : at+p])
		mean := pairwise(block) / float64(p)
		for i, v := range block {
			d := v - mean
			block[i] = d * d
		}
		variance = append(variance, pairwise(block)/float64(p))
	}
	return math.Sqrt(pairwise(variance) / float64(len(variance)))
}

// literalSearch is the search as the reference does it, divisor by divisor.
func literalSearch(x []float32) int {
	best, bestScore, before := 0, 0.0, 0.0
	for p := 1; p < len(x); p++ {
		if len(x)%p != 0 {
			continue
		}
		e := literalError(x, p)
		score := e - before
		if p == 1 {
			score = 1e-12
		}
		if best == 0 || score < bestScore {
			best, bestScore = p, score
		}
		before = e
	}
	return best
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
			x := v.X.float32s(t)
			for i, want := range errors.float64s(t) {
				p := v.Divisors[i]
				forms := map[string]float64{"as defined": literalError(x, p)}
				if p > 1 {
					forms["by element"], forms["by run"] = (&dense{x, 2}).exact(p), runsIn(x).exact(p)
				}
				for form, got := range forms {
					if got != want {
						t.Errorf("error at period %d %s: %v, expected %v", p, form, got, want)
					}
				}
			}
			var whole []int64
			for _, d := range shape {
				whole = append(whole, int64(d))
			}
			for form, find := range map[string]func() (int, error){
				"element": func() (int, error) { return FindPeriod(x, v.Name, whole, PeriodRule{}, 1) },
				"run": func() (int, error) {
					r := runsIn(x)
					return FindPeriodOfRuns(r.value, r.length, v.Name, whole, PeriodRule{})
				},
			} {
				if got, err := find(); err != nil || got != v.Period {
					t.Errorf("period by %s %d (%v), expected %d", form, got, err, v.Period)
				}
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

// values that are hard on a search: by name, value i of n in runs of a given length.
var periodValues = map[string]func(r *rand.Rand, scale float32) float32{
	"exponential": func(r *rand.Rand, scale float32) float32 { return float32(r.ExpFloat64()) * scale },
	"any sign":    func(r *rand.Rand, scale float32) float32 { return float32(r.NormFloat64()) * scale },
	"equal":       func(_ *rand.Rand, scale float32) float32 { return scale },
	"few ulps": func(r *rand.Rand, scale float32) float32 {
		for range r.IntN(3) {
			scale = math.Nextafter32(scale, 2)
		}
		return scale
	},
	"zeros":      func(r *rand.Rand, scale float32) float32 { return float32(r.IntN(2)) * scale },
	"one spike":  func(r *rand.Rand, scale float32) float32 { return float32(r.IntN(100)/99) * scale },
	"integers":   func(r *rand.Rand, _ float32) float32 { return float32(r.IntN(3)) },
	"all scales": func(r *rand.Rand, scale float32) float32 { return float32(math.Exp(-80*r.Float64())) * scale },
}

// TestSearchEqualsTheReference compares the searches by element and by run with the
// literal one, over values of all scales, near-ties and ties.
func TestSearchEqualsTheReference(t *testing.T) {
	sizes := []int{720, 1024, 840, 1536, 97, 2520, 2048, 900}
	for name, value := range periodValues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(11, 12))
			for n := range 120 {
				size := 2 + r.IntN(400)
				if n%4 == 0 {
					size = sizes[r.IntN(len(sizes))]
				}
				run, scale := 1+r.IntN(40), float32(math.Exp(-40*r.Float64()))
				cycle := 1 + r.IntN(10) // some repeat: their blocks tie
				x := make([]float32, size)
				for i := range x {
					switch {
					case i%run != 0:
						x[i] = x[i-1]
					case n%3 == 0 && i >= cycle*run:
						x[i] = x[i-cycle*run]
					default:
						x[i] = value(r, scale)
					}
				}
				compareSearches(t, x)
			}
		})
	}
}

// tb is what the rapid and testing types have in common here.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

func compareSearches(t tb, x []float32) {
	t.Helper()
	r, d := runsIn(x), &dense{x, 1}
	want := literalSearch(x)
	if got := search(len(x), d); got != want {
		t.Fatalf("%d elements: period %d, expected %d", len(x), got, want)
	}
	if got := search(len(x), r); got != want {
		t.Fatalf("%d elements in %d runs: period %d, expected %d", len(x), len(r.value), got, want)
	}
	divisors := Divisors(len(x))
	byRun, byElement := r.bounds(divisors), d.bounds(divisors)
	for i, p := range divisors[1:] {
		e := literalError(x, p)
		for form, at := range map[string]interval{"element": byElement[i+1], "run": byRun[i+1]} {
			if !(at.lo <= e && e <= at.hi) {
				t.Fatalf("%d elements: error %g at period %d is not within its bounds by %s, %g", len(x), e, p, form, at)
			}
		}
		if got := d.exact(p); got != e {
			t.Fatalf("%d elements: error at period %d is %v, expected %v", len(x), p, got, e)
		}
		if got := r.exact(p); got != e {
			t.Fatalf("%d elements in %d runs: error at period %d is %v, expected %v", len(x), len(r.value), p, got, e)
		}
	}
}

func TestSearchProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x []float32
		for range rapid.IntRange(1, 6).Draw(t, "patterns") {
			pattern := rapid.SliceOfN(rapid.Float32Range(0, 1e-3), 1, 12).Draw(t, "pattern")
			run := rapid.IntRange(1, 30).Draw(t, "run")
			for range rapid.IntRange(1, 8).Draw(t, "times") {
				for _, v := range pattern {
					for range run {
						x = append(x, v)
					}
				}
			}
		}
		if len(x) > 1 {
			compareSearches(t, x)
		}
	})
}

// TestPeriodOfManyElements is large enough for several tasks, and for sums of sums.
func TestPeriodOfManyElements(t *testing.T) {
	const n = 3 * 5 * 1 << 14
	x := make([]float32, n)
	for _, c := range []struct {
		name  string
		value func(i int) float32
		want  int
	}{
		{"noise on blocks", func(i int) float32 {
			return float32(1+splitmix(uint64(i/640))%1000) + float32(splitmix(uint64(i))%1000)*1e-4
		}, 640},
		{"noise", func(i int) float32 { return float32(splitmix(uint64(i)) % 1000) }, 20480},
		{"blocks", func(i int) float32 { return float32(splitmix(uint64(i/768)) % 1000) }, 768},
	} {
		for i := range x {
			x[i] = c.value(i)
		}
		want := literalSearch(x)
		if want != c.want {
			t.Errorf("%s: the case is not what it should be: period %d, expected %d", c.name, want, c.want)
		}
		for workers := range 4 {
			if got := search(n, &dense{x, workers}); got != want {
				t.Errorf("%s: period %d with %d workers, expected %d", c.name, got, workers, want)
			}
		}
		if got := search(n, runsIn(x)); got != want {
			t.Errorf("%s: period %d by run, expected %d", c.name, got, want)
		}
	}
}

func TestPeriodRules(t *testing.T) {
	x := make([]float32, 64)
	for _, c := range []struct {
		name  string
		n     int
		shape []int64
		rule  PeriodRule
		want  int
	}{
		{"b", 64, []int64{64}, PeriodRule{}, 64},
		{"b", 64, []int64{64}, PeriodRule{Force1D: true}, 1},
		{"w", 64, []int64{8, 8}, PeriodRule{Force1D: true}, 64},
		{"w", 64, []int64{8, 8}, PeriodRule{Force2D: true}, 1},
		{"Layers.Embed.weight", 64, []int64{8, 8}, PeriodRule{Substrings: []string{"EMBED"}}, 1},
		{"scalar", 1, nil, PeriodRule{}, 1},
		{"one of many", 1, []int64{64}, PeriodRule{}, 1},
		{"empty", 0, []int64{0, 8}, PeriodRule{}, 1},
		{"seven", 7, []int64{7}, PeriodRule{}, 1},
		{"prime", 13, []int64{13}, PeriodRule{}, 13},
	} {
		if got, err := FindPeriod(x[:c.n], c.name, c.shape, c.rule, 1); err != nil || got != c.want {
			t.Errorf("%d of %s %v %+v: period %d (%v), expected %d", c.n, c.name, c.shape, c.rule, got, err, c.want)
		}
	}
}

func TestPeriodRefuses(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		if _, err := FindPeriod([]float32{1, bad}, "w", []int64{2}, PeriodRule{}, 1); err == nil {
			t.Errorf("%v was accepted", bad)
		}
		if _, err := FindPeriodOfRuns([]float32{bad}, []int{4}, "w", []int64{4}, PeriodRule{}); err == nil {
			t.Errorf("a run of %v was accepted", bad)
		}
	}
	for _, lengths := range [][]int{{4, 0}, {4, -1}, {4, math.MaxInt}} {
		if _, err := FindPeriodOfRuns([]float32{1, 2}, lengths, "w", []int64{4}, PeriodRule{}); err == nil {
			t.Errorf("runs of %d elements were accepted", lengths)
		}
	}
}

func TestDivisors(t *testing.T) {
	for n := 1; n < 3000; n++ {
		got := Divisors(n)
		for d := 1; d <= n; d++ {
			if n%d == 0 {
				if len(got) == 0 || got[0] != d {
					t.Fatalf("divisors of %d: %v is left at %d", n, got, d)
				}
				got = got[1:]
			}
		}
		if len(got) > 0 {
			t.Fatalf("divisors of %d: %v is left", n, got)
		}
	}
}

// BenchmarkPeriod has 25 proper divisors.
func BenchmarkPeriod(b *testing.B) {
	const n = 257 << 12
	r := rand.New(rand.NewPCG(9, 10))
	x := make([]float32, n)
	for i := range x {
		v := float32(r.NormFloat64())
		x[i] = v * v
	}
	for _, workers := range []int{1, 2} {
		b.Run(map[int]string{1: "one worker", 2: "two workers"}[workers], func(b *testing.B) {
			for b.Loop() {
				if _, err := FindPeriod(x, "w", []int64{n}, PeriodRule{}, workers); err != nil {
					b.Fatal(err)
				}
			}
			perSecond(b, n)
		})
	}
}

// BenchmarkPeriodOfRuns has 26 divisors and runs as long as common blocks are.
func BenchmarkPeriodOfRuns(b *testing.B) {
	const n, block = 257 << 12, 256
	r := rand.New(rand.NewPCG(9, 10))
	var value []float32
	var length []int
	x := make([]float32, 0, n)
	for range n / block {
		v := float32(r.ExpFloat64())
		value, length = append(value, v), append(length, block)
		for range block {
			x = append(x, v)
		}
	}
	b.Run("as runs", func(b *testing.B) {
		for b.Loop() {
			if _, err := FindPeriodOfRuns(value, length, "w", []int64{n}, PeriodRule{}); err != nil {
				b.Fatal(err)
			}
		}
		perSecond(b, n)
	})
	b.Run("as elements", func(b *testing.B) {
		for b.Loop() {
			if _, err := FindPeriod(x, "w", []int64{n}, PeriodRule{}, 1); err != nil {
				b.Fatal(err)
			}
		}
		perSecond(b, n)
	})
}

// perSecond reports elements per second.
func perSecond(b *testing.B, n int) {
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melements/s")
}
