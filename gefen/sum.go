package gefen

import "math/bits"

// PyTorch on CPU adds float32 values with a kernel of 8 lanes, whatever the
// processor, in 4 interleaved streams, and every stream through a cascade of 4
// accumulators that bounds the error.
const (
	lanes   = 8
	streams = 4
	stride  = lanes * streams // values that go to different accumulators
	levels  = 4               // accumulators of a cascade
)

// cascade says when a cascade's accumulators are added to the next: after every
// 2^level items the first, after every 2^(2*level) the second, and so on.
type cascade struct{ level int }

func newCascade(items int) cascade { return cascade{max(4, ceilLog2(items)/levels)} }

// step is how many items the first accumulator takes.
func (c cascade) step() int { return 1 << c.level }

// full says how many accumulators are added to the next after item i, which is a
// multiple of the step: accumulators 0 to n-1.
func (c cascade) full(i int) int {
	n := 1
	for n < levels-1 && i&((c.step()-1)<<(n*c.level)) == 0 {
		n++
	}
	return n
}

// ceilLog2 is 1 for x <= 2, else the smallest n with 2^n >= x.
func ceilLog2(x int) int {
	if x <= 2 {
		return 1
	}
	return bits.Len(uint(x - 1))
}

// Mean32 is PyTorch's mean of a contiguous run: the sum divided by the count.
func Mean32(x []float32) float32 { return Sum32(x) / float32(len(x)) }

// Sum32 is PyTorch's sum of a contiguous run of float32 values.
func Sum32(x []float32) float32 {
	if len(x) < lanes {
		return sumFew(x)
	}
	whole := len(x) / stride * stride
	if whole < stride*newCascade(0).step() {
		var acc [stride]float32
		addRows(&acc, x[:whole])
		return gather(&acc, x[whole:])
	}
	s := newRunSum(len(x))
	s.add(x[:whole])
	return s.sum(x[whole:])
}

// sumFew sums fewer values than there are lanes: the streams are of single values.
func sumFew(x []float32) float32 {
	if len(x) < streams {
		f := float32(0)
		for _, v := range x {
			f += v
		}
		return f
	}
	f := float32(0) + x[0]
	for _, v := range x[streams:] {
		f += v
	}
	return f + x[1] + x[2] + x[3]
}

// runSum is the sum of a run that is not in memory as a whole.
type runSum struct {
	cascade
	i   int // rows of stride values so far
	acc [levels][stride]float32
}

// newRunSum begins the sum of n values, at least as many as there are lanes.
func newRunSum(n int) *runSum { return &runSum{cascade: newCascade(n / stride)} }

// add takes the next values, a multiple of stride of them.
func (s *runSum) add(x []float32) {
	for len(x) > 0 {
		n := min(s.step()-s.i&(s.step()-1), len(x)/stride)
		addRows(&s.acc[0], x[:n*stride])
		x = x[n*stride:]
		s.i += n
		if s.i&(s.step()-1) == 0 {
			for j := range s.full(s.i) {
				for k, v := range s.acc[j] {
					s.acc[j+1][k] += v
				}
				s.acc[j] = [stride]float32{}
			}
		}
	}
}

// sum takes the last values, fewer than stride, and ends the sum.
func (s *runSum) sum(rest []float32) float32 {
	for k, v := range s.acc[0] {
		s.acc[0][k] = v + s.acc[1][k] + s.acc[2][k] + s.acc[3][k]
	}
	return gather(&s.acc[0], rest)
}

// gather adds the streams of each lane, of which the first takes what is left in
// whole vectors, then the values left after that, then the lanes.
func gather(acc *[stride]float32, rest []float32) float32 {
	for ; len(rest) >= lanes; rest = rest[lanes:] {
		for j, v := range rest[:lanes] {
			acc[j] += v
		}
	}
	f := float32(0)
	for _, v := range rest {
		f += v
	}
	for j := range lanes {
		f += acc[j] + acc[lanes+j] + acc[2*lanes+j] + acc[3*lanes+j]
	}
	return f
}

// addRows adds rows of stride values to the accumulators, lane by lane.
func addRows(acc *[stride]float32, x []float32) {
	for s := 0; s < stride; s += lanes {
		a := acc[s : s+lanes : s+lanes]
		a0, a1, a2, a3, a4, a5, a6, a7 := a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
		for i := s; i+lanes <= len(x); i += stride {
			v := x[i : i+lanes : i+lanes]
			a0 += v[0]
			a1 += v[1]
			a2 += v[2]
			a3 += v[3]
			a4 += v[4]
			a5 += v[5]
			a6 += v[6]
			a7 += v[7]
		}
		a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7] = a0, a1, a2, a3, a4, a5, a6, a7
	}
}
