package reshard

import "math"

// outlook says how the state of a shard enters the next update,
// lr/bc1 * m / h with h = sqrt(v/bc2) + eps: the optimizer's own step. Without a
// second moment by blocks h is 1.
type outlook struct {
	rate float64 // lr/bc1
	bc2  float64 // of the second moment as it is
	eps  float64

	// The second moment of the next update, bias correction included, is in part
	// what it is now, and in part the mean of the squared gradients to come.
	stay float64
}

func newOutlook(p *Param, s *Shard) outlook {
	t, tv := float64(s.Step), float64(s.VmeanStep)
	if s.VmeanStep == Absent {
		tv = t
	}
	if !p.Blockwise {
		return outlook{rate: p.LR, bc2: 1, eps: 1, stay: 1} // h is 1: the momentum counts
	}
	o := outlook{eps: p.Eps, bc2: 1 - math.Pow(p.Beta2, max(tv, 1))}
	o.rate = p.LR / (1 - math.Pow(p.Beta1, t+1))
	o.stay = p.Beta2 * o.bc2 / (1 - math.Pow(p.Beta2, max(tv, 1)+1))
	return o
}

// corrected is a second moment without its bias towards zero: an estimate of the
// mean squared gradient.
func (o *outlook) corrected(v float32) float64 { return float64(v) / o.bc2 }

// root is h for a corrected second moment.
func (o *outlook) root(v float64) float64 { return math.Sqrt(v) + o.eps }

// blended is the second moment of a block that takes the place of several: the
// one whose root's reciprocal is the mean of theirs, weighted by elements times
// second moment. The momentum's square is in the mean in proportion to the second
// moment, and the sum of (m/h - m/h_i)^2 is then least. v and vy are the sums of
// the corrected second moments and of those divided by their roots.
func (o *outlook) blended(v, vy float64) float64 {
	root := max(v/vy-o.eps, 0)
	return root * root
}
