package gefen

import "math"

// relaxation is the division of points into any number of runs, each of which costs a
// penalty more. With the right penalty its best division has k runs and so is the
// best in k runs too, and it bounds from below what every other one costs. That
// takes passes over the points instead of k layers.
type relaxation struct {
	*clusters
	penalty float64
	left    []float64 // by cut: least cost of the points before it
	right   []float64 // by cut: least cost of the points after it
	runs    []int     // by cut: how many runs are in left
}

// relaxPasses bounds the search for a penalty. Where points tie in large numbers
// there may be none that leads to k runs.
const relaxPasses = 16

// candidates are the cuts that the division into k runs with the least cost may have,
// whichever rounding makes that: all cuts of divisions whose cost is within what
// rounding can do of the least. Often they are hardly more than its own. 0 and n are
// always among them.
//
// Dropping the other cuts changes no bit: sums of the dynamic program only grow, and
// those along the best division stay.
func (c *clusters) candidates() []int {
	n := c.points()
	r := &relaxation{
		clusters: c, penalty: c.guess(),
		left: make([]float64, n+1), right: make([]float64, n+1), runs: make([]int, n+1),
	}
	total, ok := r.search()
	kept := []int{0}
	if ok {
		r.toRight()
		// A cost of the points on one side is off by a few units of their weight, and
		// by one of the total for every run.
		total += 2*c.slack + 64*unit*c.w[n] + 16*unit*float64(n)*total
	}
	for cut := 1; cut < n; cut++ {
		if !ok || r.left[cut]+r.right[cut] <= total {
			kept = append(kept, cut)
		}
	}
	return append(kept, n)
}

// guess is the penalty for a smooth density: in the best division into k runs a run
// takes 1/k of the cube root of the density, and costs as much as any other.
func (c *clusters) guess() float64 {
	n := c.points()
	at := func(i int) (w, p float64) { // weight and place of point i
		w = c.w[i+1] - c.w[i]
		return w, (c.x[i+1] - c.x[i]) / w
	}
	sum := 0.0
	for i := range n {
		w, _ := at(i)
		_, left := at(max(i-1, 0))
		_, right := at(min(i+1, n-1))
		width := (right - left) / 2
		sum += math.Cbrt(w * width * width)
	}
	k := float64(c.k)
	return sum * sum * sum / (6 * k * k * k)
}

// search finds a penalty whose best division has k runs, and its cost.
func (r *relaxation) search() (total float64, ok bool) {
	low, high := 0.0, math.Inf(1)
	for range relaxPasses {
		total, runs := r.toLeft()
		switch {
		case runs == r.k:
			return total, true
		case runs > r.k:
			low = r.penalty
		default:
			high = r.penalty
		}
		// The number of runs falls about as the cube root of the penalty.
		ratio := float64(runs) / float64(r.k)
		r.penalty *= ratio * ratio * ratio
		if r.penalty <= low || r.penalty >= high {
			r.penalty = (low + min(high, 3*low)) / 2
		}
	}
	return 0, false
}

// toLeft fills left and runs, and returns both for all points. Of the starts of the
// last run only those from the last best one on need a look, as in layers, and none
// where the points before it alone cost too much.
func (r *relaxation) toLeft() (total float64, runs int) {
	n, low := r.points(), 1
	for e := 1; e < n; e++ {
		best, at := r.first(e)+r.penalty, 0
		we, xe, qe := r.w[e], r.x[e], r.q[e]
		from := low
		for s := from; s < e && r.left[s]+r.penalty <= best+r.slack; s++ {
			d := xe - r.x[s]
			v := r.left[s] + ((qe - r.q[s]) - float64(d*d)/(we-r.w[s])) + r.penalty
			if v < best-r.slack {
				low = s
			}
			if v < best {
				best, at = v, s
			}
		}
		r.left[e], r.runs[e] = best, r.runs[at]+1
	}
	total = math.Inf(1)
	for s := 1; s < n; s++ {
		if v := r.left[s] + r.last(s) + r.penalty; v < total {
			total, runs = v, r.runs[s]+1
		}
	}
	return total, runs
}

// toRight fills right, as toLeft fills left.
func (r *relaxation) toRight() {
	n := r.points()
	high := n - 1
	for s := n - 1; s > 0; s-- {
		best := r.last(s) + r.penalty
		ws, xs, qs := r.w[s], r.x[s], r.q[s]
		to := high
		for e := to; e > s && r.right[e]+r.penalty <= best+r.slack; e-- {
			d := r.x[e] - xs
			v := r.right[e] + ((r.q[e] - qs) - float64(d*d)/(r.w[e]-ws)) + r.penalty
			if v < best-r.slack {
				high = e
			}
			best = min(best, v)
		}
		r.right[s] = best
	}
}
