package gefen

import (
	"fmt"
	"math"
)

// Policy is what the optimizer was constructed with and no checkpoint says.
type Policy struct {
	PeriodRule
	// FactoredV2D keeps a factored second moment of 2-D parameters that are not
	// sharded. It is Gefen's default.
	FactoredV2D bool
	// CodebookRefreshEvery relearns the codebook every so many steps; 0 is never.
	CodebookRefreshEvery int64
}

// Optimizer is Gefen on one rank.
type Optimizer struct {
	Parameters []Parameter
	Groups     []Options
	Codebook   *Codebook // nil before the first gradient
	GlobalStep int64
	Policy
	Arithmetic
	// Workers is how many goroutines step; no bit depends on it. Below 1 is 1.
	Workers int

	quantizer *Quantizer
	quantized *Codebook // what quantizer is of
}

// Step takes one optimizer step. grads holds the gradient of every parameter's local
// values, nil where there is none. Nothing changes where it returns an error.
func (o *Optimizer) Step(grads [][]float32) error {
	if err := o.check(grads); err != nil {
		return err
	}
	periods, err := o.periods(grads)
	if err != nil {
		return err
	}
	if err := o.learn(grads, periods); err != nil {
		return err
	}
	for i := range o.Parameters {
		if p := &o.Parameters[i]; len(grads[i]) > 0 {
			p.State.Period = periods[i]
			o.step(p, grads[i])
		}
	}
	o.GlobalStep++
	return nil
}

// check refuses gradients that the step has no answer to.
func (o *Optimizer) check(grads [][]float32) error {
	if len(grads) != len(o.Parameters) {
		return fmt.Errorf("there are %d gradients, expected one for each of %d parameters", len(grads), len(o.Parameters))
	}
	for i, g := range grads {
		p := &o.Parameters[i]
		if n, ok := elements(p.held()); g != nil && (!ok || int64(len(g)) != n) {
			return fmt.Errorf("%s: the gradient has %d elements, expected those of shape %v", p.Name, len(g), p.held())
		}
		if p.Group < 0 || p.Group >= len(o.Groups) {
			return fmt.Errorf("%s: group %d of %d", p.Name, p.Group, len(o.Groups))
		}
		if p.Values != nil && g != nil && len(p.Values) != len(g) {
			return fmt.Errorf("%s: there are %d values for a gradient of %d elements", p.Name, len(p.Values), len(g))
		}
		if (p.Mode != Plain) != (o.Groups[p.Group].Muon != nil) || p.Mode != Plain && len(p.Shape) != 2 {
			return fmt.Errorf("%s: mode %q of shape %v does not go with its group's options", p.Name, p.Mode, p.Shape)
		}
		if a := AbsMax(g); !(a <= math.MaxFloat32) {
			return fmt.Errorf("%s: the gradient has a value of magnitude %v, expected finite ones", p.Name, a)
		}
	}
	return nil
}

// periods are the block lengths of the parameters with a gradient; those of a
// parameter's first gradient are found from it.
func (o *Optimizer) periods(grads [][]float32) ([]int, error) {
	periods := make([]int, len(grads))
	for i, g := range grads {
		p := &o.Parameters[i]
		periods[i] = p.State.Period
		if len(g) == 0 || periods[i] > 0 {
			continue
		}
		x := make([]float32, len(g))
		for j, v := range g {
			x[j] = v * v
		}
		rule := o.PeriodRule
		if p.Mode != Plain {
			rule = PeriodRule{} // GefenMuon has none
		}
		var err error
		if periods[i], err = FindPeriod(x, p.Name, p.Shape, rule, o.Workers); err != nil {
			return nil, err
		}
	}
	return periods, nil
}

// learn learns the codebook at the first gradient, and again when that is due.
func (o *Optimizer) learn(grads [][]float32, periods []int) error {
	resuming := false
	for i := range o.Parameters {
		resuming = resuming || o.Parameters[i].State.Period > 0
	}
	first := o.Codebook == nil
	refresh := !first && o.CodebookRefreshEvery > 0 && o.GlobalStep > 0 && o.GlobalStep%o.CodebookRefreshEvery == 0
	if first || refresh {
		var h Histogram
		for i, g := range grads {
			p := &o.Parameters[i]
			if len(g) == 0 {
				continue
			}
			if p.State.Period == 0 && (refresh || resuming) {
				return fmt.Errorf("%s: it has a gradient but no block length yet, while the codebook is learnt again at step %d; the reference stops here too", p.Name, o.GlobalStep)
			}
			h.Add(g, periods[i])
		}
		if c, ok := LearnCodebook(&h); ok {
			if refresh {
				o.requantize(&c)
			}
			o.Codebook = &c
		}
	}
	if o.Codebook != nil && (o.quantized == nil || *o.quantized != *o.Codebook) {
		c := *o.Codebook
		o.quantized, o.quantizer = &c, NewQuantizer(&c)
	}
	return nil
}

// requantize replaces every index by that of the codeword of c nearest to its own.
func (o *Optimizer) requantize(c *Codebook) {
	var to [256]uint8
	NewQuantizer(c).Nearest(to[:], o.Codebook[:])
	for i := range o.Parameters {
		index := o.Parameters[i].State.Index
		for k, code := range index {
			index[k] = to[code]
		}
	}
}

// step steps one parameter by its gradient, which has elements.
func (o *Optimizer) step(p *Parameter, g []float32) {
	st := &p.State
	st.begin(len(g))
	options := o.Groups[p.Group]
	if options.Muon != nil {
		o.stepMuon(p, g, options)
		return
	}
	if o.FactoredV2D && len(p.Shape) == 2 && !p.Sharded {
		st.ageFactored(int(p.Shape[0]), int(p.Shape[1]))
		s := o.NewStep(options, p.DType, o.Codebook, o.quantizer, st.Step, st.FactoredStep)
		sums := NewFactoredSums(len(st.Row), len(st.Col))
		for at := 0; sums.ChunkRows() > 0; {
			n := sums.ChunkRows() * len(st.Col)
			sums.Add(g[at:at+n], o.Workers)
			at += n
		}
		denominator := s.FactoredMoments(st.Factored, sums)
		o.ranges(p, g, func(v, g []float32, b Blocks, first int) {
			s.FactoredBlocks(v, nil, g, b, first, st.Factored, denominator)
		})
		return
	}
	st.age()
	s := o.NewStep(options, p.DType, o.Codebook, o.quantizer, st.Step, st.VmeanStep)
	o.ranges(p, g, func(v, g []float32, b Blocks, first int) { s.Blocks(v, nil, g, b) })
}

// stepMuon steps one of GefenMuon's parameters.
func (o *Optimizer) stepMuon(p *Parameter, g []float32, options Options) {
	st := &p.State
	st.Step++
	s := o.NewMuonStep(*options.Muon, len(g), p.DType, o.Codebook, o.quantizer)
	u := make([]float32, len(g))
	o.ranges(p, g, func(_, g []float32, b Blocks, first int) { s.Blocks(u[first:first+len(g)], g, b, first) })
	cols := int(p.Shape[1])
	m := matrix{rows: len(g) / cols, cols: cols}
	m.x = Orthogonalize(u, m.rows, m.cols, options.Muon.Schedule, options.Eps, o.Workers)
	if options.Muon.Normuon {
		if len(st.NormuonV) != m.rows {
			st.NormuonV, st.NormuonStep = make([]float32, m.rows), 0
		}
		st.NormuonStep++
		o.normuon(*options.Muon, m, st.NormuonV, st.NormuonStep)
	}
	if options.Muon.Cautious {
		cautious(m.x, g)
	}
	if p.Values != nil {
		s.apply(options, p.Shape, p.Values, m.x)
	}
}

// ranges runs a step on ranges of whole blocks of p, each with its values, gradient
// and first element.
func (o *Optimizer) ranges(p *Parameter, g []float32, run func(v, g []float32, b Blocks, first int)) {
	b := p.State.Blocks()
	per := max(1, taskElements/b.Period)
	parallel(o.Workers, (len(b.Magnitude)+per-1)/per, func(task int) {
		from, end := task*per, min((task+1)*per, len(b.Magnitude))
		at, to := from*b.Period, end*b.Period
		run(part(p.Values, at, to), g[at:to], b.Slice(from, end), at)
	})
}

// elements is the number of elements of a shape; false where it is none or too large.
func elements(shape []int64) (n int64, ok bool) {
	n = 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}
