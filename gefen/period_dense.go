package gefen

import "math"

// dense is the values of a shard, each for itself.
type dense struct {
	x       []float32
	workers int
}

// exact reckons the variance within every block, then their mean.
func (d *dense) exact(p int) float64 {
	blocks := len(d.x) / p
	variance := make([]float64, blocks)
	per := max(1, taskElements/p)
	parallel(d.workers, (blocks+per-1)/per, func(task int) {
		for b := task * per; b < min((task+1)*per, blocks); b++ {
			block := d.x[b*p : (b+1)*p]
			variance[b] = pairwiseSquares(block, pairwise(block)/float64(p)) / float64(p)
		}
	})
	return math.Sqrt(pairwise(variance) / float64(blocks))
}

// bounds adds up blocks. The sums of a divisor's blocks follow from those of the
// largest smaller one that divides it. Divisors are taken in depth: those that follow
// from one another take room for fewer sums than there are elements.
func (d *dense) bounds(divisors []int) []interval {
	n := len(d.x)
	out := make([]interval, len(divisors))
	from := make([]int, len(divisors)) // by divisor: the largest below that divides it
	for i, p := range divisors {
		for j := i - 1; j > 0 && from[i] == 0; j-- {
			if p%divisors[j] == 0 {
				from[i] = j
			}
		}
	}
	squares := sumOfSquares(d.workers, d.x)
	var multiples func(of int, sums, room []float64)
	multiples = func(of int, sums, room []float64) {
		for i := of + 1; i < len(divisors); i++ {
			if from[i] != of {
				continue
			}
			p := divisors[i]
			own := room[:n/p]
			if of == 0 {
				addBlocks(d.workers, own, d.x, p)
			} else {
				addBlocks(d.workers, own, sums, p/divisors[of])
			}
			out[i] = enclose(n, p, squares, sumOfSquares(d.workers, own))
			multiples(i, own, room[n/p:])
		}
	}
	multiples(0, nil, make([]float64, n))
	return out
}

// addBlocks sets dst[i] to the sum of block i of p consecutive values.
func addBlocks[F float32 | float64](workers int, dst []float64, x []F, p int) {
	per := max(1, taskElements/p)
	parallel(workers, (len(dst)+per-1)/per, func(task int) {
		end := min((task+1)*per, len(dst))
		out, in := dst[task*per:end], x[task*per*p:end*p]
		if p == 2 { // as half of all sums are
			for i := range out {
				out[i] = float64(in[2*i]) + float64(in[2*i+1])
			}
			return
		}
		for i := range out {
			out[i] = pairwise(in[i*p : (i+1)*p])
		}
	})
}

// sumOfSquares sums the squares of values, a task at a time and then the tasks.
func sumOfSquares[F float32 | float64](workers int, x []F) float64 {
	parts := make([]float64, (len(x)+taskElements-1)/taskElements)
	parallel(workers, len(parts), func(task int) {
		in := x[task*taskElements : min((task+1)*taskElements, len(x))]
		var chunks [taskElements / 512]float64
		for i := range chunks {
			chunks[i] = squareFew(in[min(i*512, len(in)):min((i+1)*512, len(in))])
		}
		parts[task] = pairwise(chunks[:])
	})
	return pairwise(parts)
}

// squareFew sums the squares of up to 512 values.
func squareFew[F float32 | float64](x []F) float64 {
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		b := x[i : i+4 : i+4]
		v0, v1, v2, v3 := float64(b[0]), float64(b[1]), float64(b[2]), float64(b[3])
		s0 += v0 * v0
		s1 += v1 * v1
		s2 += v2 * v2
		s3 += v3 * v3
	}
	for _, v := range x[i:] {
		s0 += float64(v) * float64(v)
	}
	return s0 + s1 + s2 + s3
}
