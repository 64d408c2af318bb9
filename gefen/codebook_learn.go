package gefen

import "slices"

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
		points = newClusters(points, weights, len(book)).centres()
	}
	for i := range book {
		book[i] = float32(points[min(i, len(points)-1)])
	}
	book[0], book[255] = -1, 1
	slices.Sort(book[:])
	return book, true
}

// centres are those of the best division, by differences of sums as the reference
// takes them.
func (c *clusters) centres() []float64 {
	out := make([]float64, c.k)
	s := 0
	for i, e := range c.cuts() {
		out[i] = (c.x[e] - c.x[s]) / (c.w[e] - c.w[s])
		s = e
	}
	return out
}
