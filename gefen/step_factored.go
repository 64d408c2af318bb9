package gefen

// Factored is the factored second moment of a 2-D parameter: running means of the
// squared gradient over each row and over each column, which multiply to a second
// moment per element. It is kept where the whole parameter is in one process.
type Factored struct {
	Row, Col []float32
}

// FactoredSums gathers the row and column sums of one squared gradient, for
// [Step.FactoredMoments].
type FactoredSums struct {
	rows, cols int
	next       int       // row that the next chunk begins with
	row, col   []float32 // sums
}

// NewFactoredSums begins the sums over a gradient of that many rows and columns,
// both at least 1.
func NewFactoredSums(rows, cols int) *FactoredSums {
	return &FactoredSums{rows: rows, cols: cols, row: make([]float32, rows), col: make([]float32, cols)}
}

// factoredChunk is how many elements of a gradient the reference squares at a time.
// The sums over columns depend on it.
const factoredChunk = 1 << 20

// ChunkRows is how many rows the next call of Add takes: it does not depend on the
// caller, since the sums do. It is 0 at the end.
func (f *FactoredSums) ChunkRows() int {
	return min(max(1, factoredChunk/f.cols), f.rows-f.next)
}

// Add takes the next ChunkRows rows of the gradient.
func (f *FactoredSums) Add(g []float32, workers int) {
	rows := f.ChunkRows()
	sums := f.row[f.next : f.next+rows]
	columns := newColumnSums(rows, f.cols)
	perTask := max(1, taskElements/f.cols)
	rowTasks := (rows + perTask - 1) / perTask
	const width = 512 // columns per task, a multiple of stride
	columnTasks := (f.cols + width - 1) / width
	parallel(workers, rowTasks+columnTasks, func(task int) {
		if task < rowTasks {
			for r := task * perTask; r < min((task+1)*perTask, rows); r++ {
				sums[r] = sumSquares(Float32, g[r*f.cols:(r+1)*f.cols])
			}
			return
		}
		from := (task - rowTasks) * width
		end := min(from+width, f.cols)
		columns.add(f.col[from:end], g, from, end)
	})
	f.next += rows
}

// FactoredMoments advances the factored second moment v by the gradient that f has
// gathered, and returns the mean over the rows that its products are divided by.
func (s *Step) FactoredMoments(v Factored, f *FactoredSums) (denominator float32) {
	for i, sum := range f.row {
		v.Row[i] = mulAdd32(s.fused, sum/float32(f.cols), s.add, v.Row[i]*s.keep)
	}
	for j, sum := range f.col {
		v.Col[j] = mulAdd32(s.fused, sum/float32(f.rows), s.add, v.Col[j]*s.keep)
	}
	return max(Mean32(v.Row), smallestNormal)
}

// FactoredBlocks steps the blocks b, which begin at element first of the parameter,
// with the factored second moment v and its denominator after the moments of this
// step. p and u are as for [Step.Blocks]; b.Vmean is not used.
func (s *Step) FactoredBlocks(p, u, g []float32, b Blocks, first int, v Factored, denominator float32) {
	var w work
	b.groups(func(b Blocks, at, end int) {
		s.requantize(&w, g[at:end], b)
		first := first + at
		s.finish(&w, part(p, at, end), part(u, at, end), b, func(at int, scale []float32) {
			s.factoredScales(scale, first+at, v, denominator)
		})
	})
}

// factoredScales sets the factors from momentum to step size of the elements from
// first on.
func (s *Step) factoredScales(scale []float32, first int, v Factored, denominator float32) {
	row, col := first/len(v.Col), first%len(v.Col)
	for len(scale) > 0 {
		n := min(len(v.Col)-col, len(scale))
		r := v.Row[row]
		for i, c := range v.Col[col : col+n] {
			h := sqrt32(r*c/denominator/s.bc2) + s.eps
			scale[i] = 1 / h * s.invBC1
		}
		scale = scale[n:]
		row, col = row+1, 0
	}
}
