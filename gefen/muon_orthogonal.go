package gefen

import "math"

// OrthogonalTolerance is how far, by the L2 norm of the difference over the norm, what
// Orthogonalize makes may be from what the reference makes. Most matrices that were
// compared are equal to the bit; where a sum is rounded to another bfloat16 the
// iterations magnify it, to 0.011 at the most.
const OrthogonalTolerance = 0.02

// Orthogonalize is Newton-Schulz: it returns a matrix of bfloat16 values near the
// orthogonal one that is nearest to x, of rows x cols values, row-major. schedule has
// the coefficients of every iteration.
//
// Values are rounded to bfloat16 where the reference rounds them, but the order of the
// sums of its products depends on the library and the processor it runs on: see
// [OrthogonalTolerance].
func Orthogonalize(x []float32, rows, cols int, schedule [][3]float64, eps float64, workers int) []float32 {
	transposed := rows > cols
	m := matrix{rows: rows, cols: cols, x: append([]float32{}, x...)}
	if transposed {
		m = m.transpose()
	}
	BFloat16.round(m.x)
	sum := 0.0
	for _, v := range m.x {
		sum += float64(v) * float64(v)
	}
	norm := max(RoundBFloat16(float32(math.Sqrt(sum))), RoundBFloat16(float32(eps)))
	for i, v := range m.x {
		m.x[i] = v / norm
	}
	BFloat16.round(m.x)
	for _, k := range schedule {
		a, b, c := float32(k[0]), float32(k[1]), float32(k[2])
		gram := m.gram(workers)
		BFloat16.round(gram.x)
		// The Gram matrix is symmetric: its square is the Gram matrix of it.
		update := gram.gram(workers)
		update.combine(c, gram, b)
		next := update.times(m, workers)
		next.combine(1, m, a)
		m = next
	}
	if transposed {
		m = m.transpose()
	}
	return m.x
}

// matrix is row-major.
type matrix struct {
	rows, cols int
	x          []float32
}

func newMatrix(rows, cols int) matrix {
	return matrix{rows: rows, cols: cols, x: make([]float32, rows*cols)}
}

func (m matrix) row(i int) []float32 { return m.x[i*m.cols : (i+1)*m.cols] }

func (m matrix) transpose() matrix {
	t := newMatrix(m.cols, m.rows)
	for i := range m.rows {
		for j, v := range m.row(i) {
			t.x[j*t.cols+i] = v
		}
	}
	return t
}

// combine sets m to s*m + t*o, rounded to bfloat16.
func (m matrix) combine(s float32, o matrix, t float32) {
	for i, v := range m.x {
		m.x[i] = float32(s*v) + float32(t*o.x[i])
	}
	BFloat16.round(m.x)
}

// gram is m times its transpose.
func (m matrix) gram(workers int) matrix {
	g := newMatrix(m.rows, m.rows)
	parallel(workers, m.rows, func(i int) {
		row := g.row(i)
		for j := range row {
			row[j] = dot(m.row(i), m.row(j))
		}
	})
	return g
}

// dot is the sum of the products of a and b, in eight partial sums.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for ; len(a) >= 8 && len(b) >= 8; a, b = a[8:], b[8:] {
		s0 += float32(a[0] * b[0])
		s1 += float32(a[1] * b[1])
		s2 += float32(a[2] * b[2])
		s3 += float32(a[3] * b[3])
		s4 += float32(a[4] * b[4])
		s5 += float32(a[5] * b[5])
		s6 += float32(a[6] * b[6])
		s7 += float32(a[7] * b[7])
	}
	for i, v := range a {
		s0 += float32(v * b[i])
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}

// times is m times o.
func (m matrix) times(o matrix, workers int) matrix {
	p := newMatrix(m.rows, o.cols)
	parallel(workers, m.rows, func(i int) {
		row := p.row(i)
		for l, factor := range m.row(i) {
			for j, v := range o.row(l) {
				row[j] += float32(factor * v)
			}
		}
	})
	return p
}

// normuon divides the rows of the update u by NorMuon's root mean squares of them, of
// which v and age, 1 or more after this step, are the state, and scales it back to the
// norm it had.
func (a Arithmetic) normuon(o MuonOptions, u matrix, v []float32, age int64) {
	norms, scale := make([]float32, u.rows), make([]float32, u.rows)
	keep := float32(o.NormuonBeta2)
	add := float32((1 - o.NormuonBeta2) / float64(u.cols))
	bc := float32(biasCorrection(o.NormuonBeta2, age))
	before, after := 0.0, 0.0
	for i := range norms {
		sum := 0.0
		for _, x := range u.row(i) {
			sum += float64(x) * float64(x)
		}
		norms[i] = float32(math.Sqrt(sum))
		square := norms[i] * norms[i]
		before += float64(square)
		v[i] = mulAdd32(!a.NoFMA, square, add, v[i]*keep)
		scale[i] = sqrt32(v[i]/bc) + float32(o.NormuonEps)
		ratio := float64(norms[i] / scale[i])
		after += float64(ratio * ratio)
	}
	whole := sqrt32(float32(before)) / max(float32(math.Sqrt(after)), smallestNormal)
	for i := range scale {
		by := RoundBFloat16(whole / scale[i])
		row := u.row(i)
		for j, x := range row {
			row[j] = x * by
		}
	}
	BFloat16.round(u.x)
}

// cautious zeroes what of the update u is against the gradient g, and scales the rest
// to keep its mean.
func cautious(u, g []float32) {
	agree := 0
	for i, v := range u {
		if v*g[i] > 0 {
			agree++
		}
	}
	scale := RoundBFloat16(float32(len(u)) / float32(max(agree, 1)))
	for i, v := range u {
		if v*g[i] > 0 {
			u[i] = v * scale
		} else {
			u[i] = 0
		}
	}
	BFloat16.round(u)
}
