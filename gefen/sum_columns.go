package gefen

// columnSums sums the squares of a matrix down its columns as PyTorch does: in one
// cascade per column where it has whole vectors of columns, in 4 interleaved streams
// otherwise.
type columnSums struct {
	rows, cols int
	plain      int // columns before this one are summed in one cascade
}

func newColumnSums(rows, cols int) columnSums {
	c := columnSums{rows: rows, cols: cols}
	switch {
	case cols >= lanes:
		c.plain = cols / stride * stride
	default:
		c.plain = cols / streams * streams
	}
	return c
}

// add adds the sums of columns from to end of g, row-major, to dst, which begins
// at column from.
func (c columnSums) add(dst, g []float32, from, end int) {
	if c.cols == 1 { // a contiguous run
		dst[0] += sumSquares(Float32, g[:c.rows])
		return
	}
	sums := make([]float32, (end-from)*(levels+streams-1))
	if plain := min(c.plain, end); from < plain {
		c.cascades(sums, g, from, plain, 0, 1, c.rows)
		for j := range dst[:plain-from] {
			dst[j] += sums[j]
		}
		from, dst = plain, dst[plain-from:]
	}
	if from == end {
		return
	}
	n := end - from
	for s := range streams {
		c.cascades(sums[s*n:], g, from, end, s, streams, c.rows/streams)
	}
	first := sums[:n]
	for i := c.rows / streams * streams; i < c.rows; i++ {
		for j, v := range g[i*c.cols+from : i*c.cols+end] {
			first[j] += float32(v * v)
		}
	}
	for j := range dst[:n] {
		dst[j] += sums[j] + sums[n+j] + sums[2*n+j] + sums[3*n+j]
	}
}

// cascades sets sums[:end-from] to the sums of rows first, first+by, ... of them
// count, down columns from to end. It uses room for the four levels.
func (c columnSums) cascades(sums, g []float32, from, end, first, by, count int) {
	n := end - from
	sums = sums[:levels*n]
	clear(sums)
	fold := newCascade(count)
	for i := range count {
		row := g[(first+i*by)*c.cols+from:]
		acc := sums[:n]
		for j, v := range row[:n] {
			acc[j] += float32(v * v)
		}
		if (i+1)&(fold.step()-1) == 0 {
			for l := range fold.full(i + 1) {
				low, high := sums[l*n:(l+1)*n], sums[(l+1)*n:(l+2)*n]
				for j, v := range low {
					high[j] += v
				}
				clear(low)
			}
		}
	}
	for j := range sums[:n] {
		sums[j] = sums[j] + sums[n+j] + sums[2*n+j] + sums[3*n+j]
	}
}
