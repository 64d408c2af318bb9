package gefen

import "math/bits"

// lanes is the width of PyTorch's float32 summation kernel, whatever the
// processor.
const lanes = 8

// Sum32 is PyTorch's sum of a contiguous run of float32 values: cascaded sums in
// 8 lanes of 4 interleaved streams, and the lanes added in order at the end.
func Sum32(x []float32) float32 {
	if len(x) < lanes {
		var s streams[[1]float32]
		return s.sum(len(x), func(i int, acc *[1]float32) { acc[0] += x[i] })[0]
	}
	n := len(x) / lanes
	var s streams[[lanes]float32]
	total := s.sum(n, func(i int, acc *[lanes]float32) {
		v := x[i*lanes : i*lanes+lanes : i*lanes+lanes]
		for j := range acc {
			acc[j] += v[j]
		}
	})
	f := float32(0)
	for _, v := range x[n*lanes:] {
		f += v
	}
	for _, v := range total {
		f += v
	}
	return f
}

// Mean32 is PyTorch's mean of a contiguous run: the sum divided by the count.
func Mean32(x []float32) float32 { return Sum32(x) / float32(len(x)) }

// vector is one lane or eight.
type vector interface{ [1]float32 | [lanes]float32 }

// streams sums k vectors as four interleaved cascades.
type streams[V vector] struct{ zero V }

func (streams[V]) sum(k int, add func(i int, acc *V)) V {
	var t [4]V
	for s := range t {
		t[s] = cascade(k/4, func(i int, acc *V) { add(4*i+s, acc) })
	}
	for i := k / 4 * 4; i < k; i++ {
		add(i, &t[0])
	}
	return plus(plus(plus(t[0], t[1]), t[2]), t[3])
}

// cascade sums k vectors with four accumulators, of which each takes over from
// the one below it every 2^level vectors.
func cascade[V vector](k int, add func(i int, acc *V)) V {
	level := max(4, ceilLog2(k)/4)
	step := 1 << level
	mask := step - 1
	var acc [4]V
	var zero V
	i := 0
	for i+step <= k {
		for range step {
			add(i, &acc[0])
			i++
		}
		for j := 1; j < len(acc); j++ {
			acc[j] = plus(acc[j], acc[j-1])
			acc[j-1] = zero
			if i&(mask<<(j*level)) != 0 {
				break
			}
		}
	}
	for ; i < k; i++ {
		add(i, &acc[0])
	}
	return plus(plus(plus(acc[0], acc[1]), acc[2]), acc[3])
}

func plus[V vector](a, b V) V {
	switch a := any(&a).(type) {
	case *[1]float32:
		a[0] += any(&b).(*[1]float32)[0]
	case *[lanes]float32:
		for j, v := range any(&b).(*[lanes]float32) {
			a[j] += v
		}
	}
	return a
}

// ceilLog2 is 1 for x <= 2, else the smallest n with 2^n >= x.
func ceilLog2(x int) int {
	if x <= 2 {
		return 1
	}
	return bits.Len(uint(x - 1))
}
