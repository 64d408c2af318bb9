package gefen

import "math"

// unit is the relative error of one rounded operation.
const unit = 0x1p-53

// clusters divides sorted points, of which the first n have the weight w[n] and so
// on, into k runs, so that the sum of the runs' costs is least: an exact weighted
// k-means in one dimension. A run's cost is the weighted sum of squared distances to
// its centre, which is its mean; only the first run's is -1 and the last run's +1. A
// cut is the number of points before it.
//
// The costs obey the quadrangle inequality (those of the two fixed centres with
// equality), so the best start of the last run never falls as its end grows. Hence
// each layer, the least costs of the points before every cut in a given number of
// runs, follows from the one before by divide and conquer. Starts that rounding may
// order either way widen the windows that are passed on, so that the first minimum is
// found as a full search finds it, to the bit.
type clusters struct {
	k       int
	w, x, q []float64 // by cut: sums of weight, weight*point, weight*point^2
	slack   float64   // costs this close to a minimum may be it without rounding
}

// newClusters sums up k or more points with positive weights; points may number up to
// 65,536.
func newClusters(points, weights []float64, k int) *clusters {
	n := len(points)
	c := &clusters{k: k, w: make([]float64, n+1), x: make([]float64, n+1), q: make([]float64, n+1)}
	for i, p := range points {
		w := weights[i]
		c.w[i+1] = c.w[i] + w
		c.x[i+1] = c.x[i] + float64(w*p)
		c.q[i+1] = c.q[i] + float64(w*float64(p*p))
	}
	// A cost is rounded a few times, each time by at most a unit of the total weight.
	c.slack = 32 * unit * c.w[n]
	return c
}

// points is how many there are.
func (c *clusters) points() int { return len(c.w) - 1 }

// first is the cost of the first run if it ends at the cut e.
func (c *clusters) first(e int) float64 { return (c.q[e] + 2*c.x[e]) + c.w[e] }

// last is the cost of the last run if it starts at the cut s.
func (c *clusters) last(s int) float64 {
	n := c.points()
	return ((c.q[n] - c.q[s]) - 2*(c.x[n]-c.x[s])) + (c.w[n] - c.w[s])
}

// cuts are the ends of the runs of the best division.
func (c *clusters) cuts() []int {
	kept := c.candidates()
	few := c.only(kept)
	cuts := few.solve()
	for i, cut := range cuts {
		cuts[i] = kept[cut]
	}
	return cuts
}

// only is c without all cuts but the kept ones.
func (c *clusters) only(kept []int) *clusters {
	few := &clusters{k: c.k, slack: c.slack}
	for _, cut := range kept {
		few.w, few.x, few.q = append(few.w, c.w[cut]), append(few.x, c.x[cut]), append(few.q, c.q[cut])
	}
	return few
}

// solve finds the cuts layer by layer.
func (c *clusters) solve() []int {
	n := c.points()
	l := &layers{
		clusters: c,
		before:   make([]float64, n+1), best: make([]float64, n+1),
		low: make([]int32, n+1), high: make([]int32, n+1),
		start: make([][]uint16, c.k),
	}
	for e := 1; e <= n; e++ {
		l.best[e] = c.first(e)
	}
	for runs := 2; runs < c.k; runs++ {
		l.add(runs)
	}
	cuts := make([]int, c.k)
	cuts[c.k-1] = n
	least := math.Inf(1)
	for s := c.k - 1; s < n; s++ {
		if v := l.best[s] + c.last(s); v < least {
			least, cuts[c.k-2] = v, s
		}
	}
	for runs := c.k - 1; runs > 1; runs-- {
		cuts[runs-2] = int(l.start[runs][cuts[runs-1]])
	}
	return cuts
}

// layers is the state of the dynamic program.
type layers struct {
	*clusters
	before, best []float64  // by cut: least costs in the last but one and last layer
	start        [][]uint16 // by number of runs and cut: where the last run starts
	low, high    []int32    // by cut: the outermost starts that may be best in the last layer
}

// add adds the layer of as many runs: from the middle cut outwards, each cut between
// two that are known.
func (l *layers) add(runs int) {
	l.before, l.best = l.best, l.before
	l.start[runs] = make([]uint16, len(l.w))
	lo, hi := runs, l.points()-(l.k-runs) // cuts that leave a point for every other run
	stride := 1
	for 2*stride <= hi-lo+1 {
		stride *= 2
	}
	for ; stride > 0; stride /= 2 {
		for e := lo + stride - 1; e <= hi; e += 2 * stride {
			from, to := runs-1, e-1
			if e-stride >= lo {
				from = int(l.low[e-stride])
			}
			if e+stride <= hi {
				to = min(to, int(l.high[e+stride]))
			}
			l.end(runs, e, from, to)
		}
	}
}

// end finds the best start within [from, to] of the last run, if that ends at e. Its
// cost around its mean is the sum of weight*point^2 less the square of that of
// weight*point by the weight, the difference and the quotient rounded as the reference
// does.
func (l *layers) end(runs, e, from, to int) {
	before := l.before[from : to+1]
	w, x, q := l.w[from:][:len(before)], l.x[from:][:len(before)], l.q[from:][:len(before)]
	we, xe, qe := l.w[e], l.x[e], l.q[e]
	best, at, low, high := math.Inf(1), 0, 0, 0
	limit := best
	for i, b := range before {
		d := xe - x[i]
		v := b + ((qe - q[i]) - float64(d*d)/(we-w[i]))
		if v > limit {
			continue
		}
		high = i
		if v < best {
			if v < best-l.slack {
				low = i
			}
			best, at, limit = v, i, v+l.slack
		}
	}
	l.best[e], l.start[runs][e] = best, uint16(from+at)
	l.low[e], l.high[e] = int32(from+low), int32(from+high)
}

// KMeans finds the k centres, in order, from which points have the least weighted sum
// of squared distances, each from the nearest, and that sum. The first centre is -1
// and the last +1, as in a codebook. points are sorted, distinct, within [-1, 1] and
// at most 65,534; weights are not negative. Where k centres can be at all points,
// there are only as many.
//
// The sum is within 2^-47 of the total weight, for each point, of the least: sums are
// rounded, and points are divided as if each had at least 2^-50 of the total weight.
func KMeans(points, weights []float64, k int) (centres []float64, sum float64) {
	points, weights = withEnds(points, weights)
	if len(points) <= k {
		return points, 0
	}
	total := 0.0
	for _, w := range weights {
		total += w
	}
	if total == 0 {
		total = 1
	}
	shares := make([]float64, len(weights))
	for i, w := range weights {
		shares[i] = max(w/total, 0x1p-50)
	}
	c := newClusters(points, shares, k)
	// The sums are rounded, so a run's weight is off by a unit per point, and with
	// it how its cost compares.
	c.slack = float64(len(points)+16) * 8 * unit * c.w[len(points)]
	centres = make([]float64, k)
	s := 0
	for i, e := range c.cuts() {
		switch i {
		case 0:
			centres[i] = -1
		case k - 1:
			centres[i] = 1
		default:
			centres[i] = mean(points[s:e], weights[s:e])
		}
		for j := s; j < e; j++ {
			d := points[j] - centres[i]
			sum += float64(weights[j] * float64(d*d))
		}
		s = e
	}
	return centres, sum
}

// withEnds copies points with -1 and +1 among them, without weight where they are new.
func withEnds(points, weights []float64) (p, w []float64) {
	if len(points) == 0 || points[0] > -1 {
		p, w = append(p, -1), append(w, 0)
	}
	p, w = append(p, points...), append(w, weights...)
	if p[len(p)-1] < 1 {
		p, w = append(p, 1), append(w, 0)
	}
	return p, w
}

// mean is the weighted mean, or the middle of points without weight.
func mean(points, weights []float64) float64 {
	w, x := 0.0, 0.0
	for i, p := range points {
		w += weights[i]
		x += float64(weights[i] * (p - points[0]))
	}
	if w == 0 {
		return (points[0] + points[len(points)-1]) / 2
	}
	return points[0] + x/w
}
