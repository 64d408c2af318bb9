package gefen

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fullSearch divides points into k runs as the reference does: every start of every
// run, the first of equal minima. It returns the centres and the least cost.
func fullSearch(points, weights []float64, k int) ([]float64, float64) {
	n := len(points)
	w, x, q := make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	for i, p := range points {
		w[i+1] = w[i] + weights[i]
		x[i+1] = x[i] + float64(weights[i]*p)
		q[i+1] = q[i] + float64(weights[i]*float64(p*p))
	}
	cost := func(s, e, run int) float64 { // points s to e, from 1
		w, x, q := w[e]-w[s-1], x[e]-x[s-1], q[e]-q[s-1]
		centre := 0.0
		switch run {
		case 1:
			centre = -1
		case k:
			centre = 1
		default:
			return q - float64(x*x)/w
		}
		return float64(q-2*centre*x) + float64(centre*centre)*w
	}
	dp, start := make([][]float64, k+1), make([][]int, k+1)
	for run := range dp {
		dp[run], start[run] = make([]float64, n+1), make([]int, n+1)
		for e := range dp[run] {
			dp[run][e] = math.Inf(1)
		}
		if run == 0 {
			dp[0][0] = 0
			continue
		}
		for e := run; e <= n; e++ {
			for s := run; s <= e; s++ {
				if v := dp[run-1][s-1] + cost(s, e, run); v < dp[run][e] {
					dp[run][e], start[run][e] = v, s
				}
			}
		}
	}
	centres := make([]float64, k)
	for run, e := k, n; run > 0; run-- {
		s := start[run][e]
		centres[run-1] = (x[e] - x[s-1]) / (w[e] - w[s-1])
		e = s - 1
	}
	return centres, dp[k][n]
}

// histograms that are hard on ties and on rounding: the weight of bin i of n.
var histograms = map[string]func(r *rand.Rand, i, n int) float64{
	"random": func(r *rand.Rand, _, _ int) float64 { return float64(r.IntN(1000)) },
	"spiky":  func(r *rand.Rand, _, _ int) float64 { return math.Floor(math.Pow(10, 6.5*r.Float64())) },
	"spikes": func(r *rand.Rand, _, _ int) float64 { return math.Floor(math.Pow(r.Float64(), -3)) },
	"comb":   func(_ *rand.Rand, i, _ int) float64 { return 1 + 999*float64((i/7)%2) },
	"grid":   func(_ *rand.Rand, i, _ int) float64 { return float64((i + 1) % 2) },
	"equal":  func(*rand.Rand, int, int) float64 { return 7 },
	"mirror": func(_ *rand.Rand, i, n int) float64 {
		return float64(uint32(min(i, n-1-i)+1) * 2654435761 >> 25)
	},
	"sparse": func(r *rand.Rand, _, _ int) float64 { return float64(r.IntN(4) / 3) },
	"bell": func(_ *rand.Rand, i, n int) float64 {
		x := float64(2*i-n) / float64(n) * 3
		return math.Floor(1e6*math.Exp(-x*x/2)) + 1
	},
	"tails": func(_ *rand.Rand, i, n int) float64 {
		return math.Floor(1e5*math.Exp(-math.Abs(float64(2*i-n)/float64(n))*12)) + 1
	},
	// Beyond 2^24 counts are rounded, beyond 2^29 in all the sums of squares are.
	"huge": func(r *rand.Rand, _, _ int) float64 { return float64(float32(r.Uint32())) },
	"vast": func(r *rand.Rand, _, _ int) float64 { return float64(float32(math.Exp(26 * r.Float64()))) },
}

// bins makes the active ones of n bins spread over all of a histogram.
func bins(r *rand.Rand, n int, weight func(*rand.Rand, int, int) float64) (points, weights []float64) {
	for i := range n {
		if w := math.Floor(weight(r, i, n)); w > 0 {
			points, weights = append(points, centre(i*Bins/n)), append(weights, w)
		}
	}
	return points, weights
}

// TestDivisionEqualsTheFullSearch compares every centre to the bit, by divide and
// conquer over all cuts and over those that the relaxation leaves.
func TestDivisionEqualsTheFullSearch(t *testing.T) {
	for name, weight := range histograms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			for _, size := range []struct{ n, k, times int }{
				{40, 2, 20}, {40, 3, 20}, {64, 13, 20}, {100, 99, 3}, {300, 17, 3}, {600, 64, 2}, {480, 256, 1},
			} {
				for range size.times {
					points, weights := bins(r, size.n, weight)
					if len(points) < size.k {
						continue
					}
					want, _ := fullSearch(points, weights, size.k)
					c := newClusters(points, weights, size.k)
					if got := c.centres(); !slices.Equal(got, want) {
						t.Fatalf("%d points, %d runs: centres differ", len(points), size.k)
					}
					all := make([]int, len(points)+1)
					for i := range all {
						all[i] = i
					}
					whole, s := make([]float64, size.k), 0
					for i, e := range c.only(all).solve() {
						whole[i] = (c.x[e] - c.x[s]) / (c.w[e] - c.w[s])
						s = e
					}
					if !slices.Equal(whole, want) {
						t.Fatalf("%d points, %d runs: centres differ without the relaxation", len(points), size.k)
					}
				}
			}
		})
	}
}

// TestRelaxationLeavesFewCuts shows that it finds a penalty for common histograms.
func TestRelaxationLeavesFewCuts(t *testing.T) {
	for _, name := range []string{"bell", "tails", "random", "spiky", "huge"} {
		points, weights := bins(rand.New(rand.NewPCG(1, 2)), Bins, histograms[name])
		if n := len(newClusters(points, weights, 256).candidates()); n > 400 {
			t.Errorf("%s: %d cuts of %d points are left, expected hardly more than 257", name, n, len(points))
		}
	}
}

func TestKMeansFindsTheLeastSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n, k := rapid.IntRange(1, 60).Draw(t, "n"), rapid.IntRange(2, 20).Draw(t, "k")
		spread := rapid.SampledFrom([]float64{1, 8, 40}).Draw(t, "spread of weights")
		near := rapid.SampledFrom([]float64{1, 1e-3, 1e-6}).Draw(t, "distance of neighbours")
		points, weights := make([]float64, n), make([]float64, n)
		for i := range points {
			points[i] = 2*r.Float64() - 1
			if i%2 == 1 {
				points[i] = max(-1, points[i-1]-near*r.Float64())
			}
			weights[i] = math.Exp(-spread * r.Float64())
		}
		slices.Sort(points)
		points = slices.Compact(points)
		weights = weights[:len(points)]
		centres, sum := KMeans(points, weights, k)

		if len(centres) > k || centres[0] != -1 || centres[len(centres)-1] != 1 || !slices.IsSorted(centres) {
			t.Fatalf("%d centres %v, expected at most %d from -1 to 1", len(centres), centres, k)
		}
		total, own := 0.0, 0.0
		for i, p := range points {
			d := math.Inf(1)
			for _, c := range centres {
				d = min(d, (p-c)*(p-c))
			}
			own += weights[i] * d
			total += weights[i]
		}
		least := leastSum(points, weights, k)
		if slack := 1e-12 * total; sum < own-slack || own < least-slack || sum > least+slack {
			t.Errorf("sum %g, of the centres %g, expected %g", sum, own, least)
		}
	})
}

// leastSum is that of every division of points into k runs or fewer, of which the
// outer two may be empty, without differences of sums.
func leastSum(points, weights []float64, k int) float64 {
	n := len(points)
	about := func(s, e int, centre float64) float64 {
		sum := 0.0
		for i := s; i < e; i++ {
			sum += weights[i] * (points[i] - centre) * (points[i] - centre)
		}
		return sum
	}
	best := make([]float64, n+1)
	for e := range best {
		best[e] = about(0, e, -1)
	}
	for range k - 2 {
		next := slices.Clone(best)
		for e := range next {
			for s := range e {
				next[e] = min(next[e], best[s]+about(s, e, mean(points[s:e], weights[s:e])))
			}
		}
		best = next
	}
	least := math.Inf(1)
	for s := range best {
		least = min(least, best[s]+about(s, n, 1))
	}
	return least
}

func TestKMeansKeepsFewPoints(t *testing.T) {
	for _, c := range []struct {
		name         string
		points, want []float64
		k            int
	}{
		{"none", nil, []float64{-1, 1}, 256},
		{"with the ends", []float64{-1, -0.25, 0.5, 1}, []float64{-1, -0.25, 0.5, 1}, 256},
		{"without the ends", []float64{-0.25, 0.5}, []float64{-1, -0.25, 0.5, 1}, 4},
	} {
		weights := []float64{1, 2, 3, 4}[:len(c.points)]
		if got, sum := KMeans(c.points, weights, c.k); !slices.Equal(got, c.want) || sum != 0 {
			t.Errorf("%s: centres %v at %v, expected %v at 0", c.name, got, sum, c.want)
		}
	}
}

// TestKMeansWithoutWeight has points whose weight is lost in rounding, or none.
func TestKMeansWithoutWeight(t *testing.T) {
	points, weights := make([]float64, 600), make([]float64, 600)
	for i := range points {
		points[i] = float64(2*i+1)/600 - 1
		weights[i] = 1e-300
	}
	for _, heavy := range []float64{1e-300, 1e300} {
		weights[300] = heavy
		centres, sum := KMeans(points, weights, 256)
		if len(centres) != 256 || !slices.IsSorted(centres) || !(sum < 1e-300) || !(sum > 0) {
			t.Errorf("%d centres at %v", len(centres), sum)
		}
	}
	clear(weights)
	if centres, sum := KMeans(points, weights, 256); len(centres) != 256 || !slices.IsSorted(centres) || sum != 0 {
		t.Errorf("%d centres at %v without any weight", len(centres), sum)
	}
}

func TestKMeansOfTheMostPoints(t *testing.T) {
	const n = 65534
	points, weights := make([]float64, n), make([]float64, n)
	r := rand.New(rand.NewPCG(3, 3))
	for i := range points {
		points[i] = float64(2*i+1)/n - 1
		weights[i] = r.Float64()
	}
	centres, sum := KMeans(points, weights, 256)
	// Uniform: 255 runs of equal width, half of one at either end.
	if want := n / 2 / 3.0 / (255 * 255); len(centres) != 256 || math.Abs(sum/want-1) > 0.02 {
		t.Errorf("%d centres at %v, expected about %v", len(centres), sum, want)
	}
}
