package gefen

import (
	"math"
	"slices"
)

// clusters is one exact weighted k-means in one dimension, by dynamic
// programming over the layers 1..k: best[e] is the least cost of covering points
// 0..e with as many clusters as there are layers.
//
// The segment cost obeys the quadrangle inequality (the first and last centre,
// which are fixed, add a cost that obeys it with equality), so the best start of
// the last cluster never falls as e grows, and each layer is solved by divide
// and conquer. Near-ties, which rounding may order either way, widen the windows
// that are passed on, so that the first minimum is found as a full search finds
// it.
type clusters struct {
	w, x, q []float64 // prefix sums of weight, weight*point, weight*point^2; index 0 is 0
	fixed   bool      // the first centre is -1 and the last +1
	k       int
	n       int
	slack   float64 // values this close to a minimum count as near-ties
	before  []float64
	best    []float64
	values  []float64  // scratch: one per candidate
	start   [][]uint16 // by layer: first point of the last cluster
}

// newClusters sums up sorted points with positive weights. points may number up
// to 65,535.
func newClusters(points, weights []float64, k int, fixed bool) *clusters {
	n := len(points)
	c := &clusters{w: make([]float64, n+1), x: make([]float64, n+1), q: make([]float64, n+1), fixed: fixed, k: k, n: n}
	for i, p := range points {
		w := weights[i]
		c.w[i+1] = c.w[i] + w
		c.x[i+1] = c.x[i] + float64(w*p)
		c.q[i+1] = c.q[i] + float64(w*float64(p*p))
	}
	c.slack = 16 * 0x1p-52 * c.w[n]
	return c
}

// cost of the points [s, e] (from 0) as cluster number layer.
func (c *clusters) cost(layer, s, e int) float64 {
	w, x, q := c.w[e+1]-c.w[s], c.x[e+1]-c.x[s], c.q[e+1]-c.q[s]
	switch {
	case c.fixed && layer == 1:
		return float64(q+2*x) + w
	case c.fixed && layer == c.k:
		return float64(q-2*x) + w
	}
	return q - float64(x*x)/w
}

// solve fills all layers; n must be at least k.
func (c *clusters) solve() {
	c.before, c.best = make([]float64, c.n), make([]float64, c.n)
	c.values = make([]float64, c.n)
	c.start = make([][]uint16, c.k+1)
	for e := range c.n {
		c.best[e] = c.cost(1, 0, e)
	}
	for layer := 2; layer <= c.k; layer++ {
		c.before, c.best = c.best, c.before
		c.start[layer] = make([]uint16, c.n)
		lo := layer - 1
		if layer == c.k {
			lo = c.n - 1
		}
		c.layer(layer, lo, c.n-1, layer-1, c.n-1)
	}
}

// layer finds the best start for the ends [lo, hi], knowing that it lies within
// [from, to].
func (c *clusters) layer(layer, lo, hi, from, to int) {
	if lo > hi {
		return
	}
	mid := lo + (hi-lo)/2
	last := min(mid, to)
	values := c.candidates(layer, from, last, mid)
	best, at := math.Inf(1), 0
	for i, v := range values {
		if v < best {
			best, at = v, i
		}
	}
	c.best[mid], c.start[layer][mid] = best, uint16(from+at)
	if lo == hi {
		return
	}
	left, right := 0, len(values)-1
	for values[left] > best+c.slack {
		left++
	}
	for values[right] > best+c.slack {
		right--
	}
	left, right = from+left, from+right
	c.layer(layer, lo, mid-1, from, right)
	c.layer(layer, mid+1, hi, left, to)
}

// candidates are the costs of ending layer at e with a last cluster that starts at
// each of [from, last]: cost, term by term, with what is the same for all starts
// outside the loop.
func (c *clusters) candidates(layer, from, last, e int) []float64 {
	values := c.values[:last-from+1]
	before := c.before[from-1:][:len(values)]
	w, x, q := c.w[from:][:len(values)], c.x[from:][:len(values)], c.q[from:][:len(values)]
	we, xe, qe := c.w[e+1], c.x[e+1], c.q[e+1]
	if c.fixed && layer == c.k {
		for i := range values {
			values[i] = before[i] + (float64((qe-q[i])-2*(xe-x[i])) + (we - w[i]))
		}
		return values
	}
	for i := range values {
		d := xe - x[i]
		values[i] = before[i] + ((qe - q[i]) - float64(d*d)/(we-w[i]))
	}
	return values
}

// centres walks back from the last point and returns the k centres.
func (c *clusters) centres() []float64 {
	out := make([]float64, c.k)
	for layer, e := c.k, c.n-1; layer >= 1; layer-- {
		s := 0
		if layer > 1 {
			s = int(c.start[layer][e])
		}
		out[layer-1] = (c.x[e+1] - c.x[s]) / (c.w[e+1] - c.w[s])
		e = s - 1
	}
	if c.fixed {
		out[0], out[c.k-1] = -1, 1
	}
	return out
}

// LearnCodebook learns the codebook of a histogram as Gefen does; false where
// nothing was counted. Where fewer than 256 bins are active their centres are
// the codewords, the last one repeated, and the ends replaced by -1 and +1.
func LearnCodebook(h *Histogram) (Codebook, bool) {
	var points, weights []float64
	for i, n := range h {
		if n > 0 {
			points = append(points, centre(i))
			weights = append(weights, float64(float32(n)))
		}
	}
	var book Codebook
	if len(points) == 0 {
		return book, false
	}
	if len(points) >= len(book) {
		c := newClusters(points, weights, len(book), true)
		c.solve()
		points = c.centres()
	}
	for i := range book {
		book[i] = float32(points[min(i, len(points)-1)])
	}
	book[0], book[255] = -1, 1
	slices.Sort(book[:])
	return book, true
}

// KMeans finds the k centres that minimize the weighted sum of squared distances
// from sorted, distinct points (at most 65,535) to their nearest centre, and that
// sum. The first centre is -1 and the last +1, each for at least one point, as a
// codebook needs them. With k points or fewer every point is a centre.
func KMeans(points, weights []float64, k int) (centres []float64, cost float64) {
	if len(points) <= k {
		return slices.Clone(points), 0
	}
	c := newClusters(points, weights, k, true)
	c.solve()
	return c.centres(), max(c.best[c.n-1], 0)
}
