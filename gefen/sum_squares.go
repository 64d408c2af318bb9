package gefen

// tile is how many elements are worked on at a time: few enough for a kernel's
// temporaries to stay in the first-level cache, a multiple of stride.
const tile = 2048

// sumSquares is the sum of the squares of x, each rounded to the type.
func sumSquares(d DType, x []float32) float32 {
	var q [tile]float32
	if len(x) <= tile {
		squares(d, q[:], x)
		return Sum32(q[:len(x)])
	}
	s := newRunSum(len(x))
	for len(x) >= tile {
		squares(d, q[:], x[:tile])
		s.add(q[:])
		x = x[tile:]
	}
	squares(d, q[:], x)
	whole := len(x) / stride * stride
	s.add(q[:whole])
	return s.sum(q[whole:len(x)])
}

// squares sets q[:len(x)] to the squares of x, rounded to the type.
func squares(d DType, q, x []float32) {
	q = q[:len(x)]
	for i, v := range x {
		q[i] = v * v
	}
	d.round(q)
}
