package gefen

import "fmt"

// Dense is the dense state of one parameter on one rank.
type Dense struct {
	Name     string
	Shape    []int64   // of the whole parameter
	Momentum []float32 // of the rank's part
	Second   []float32 // second moment, as many
}

// Relearn makes the block states of a rank's parameters from their dense states, as
// Gefen does when it loads these: a block length for each from its second moment, one
// codebook from the momentum in blocks of these, and then per block the largest |m|,
// the nearest codewords, and the mean of the second moment. Momenta are overwritten.
// Parameters without elements get no blocks, and without any element there is no
// codebook. No bit depends on the number of workers.
func Relearn(params []Dense, r PeriodRule, workers int) (*Codebook, []Blocks, error) {
	blocks := make([]Blocks, len(params))
	var h Histogram
	for i, p := range params {
		if len(p.Momentum) != len(p.Second) {
			return nil, nil, fmt.Errorf("%s: there are %d momenta and %d second moments, expected as many", p.Name, len(p.Momentum), len(p.Second))
		}
		if len(p.Momentum) == 0 {
			continue
		}
		if a := AbsMax(p.Momentum); !finite(a) {
			return nil, nil, fmt.Errorf("%s: the momentum has a value of magnitude %v, expected finite ones", p.Name, a)
		}
		period, err := FindPeriod(p.Second, p.Name, p.Shape, r, workers)
		if err != nil {
			return nil, nil, err
		}
		blocks[i].Period = period
		h.Add(p.Momentum, period)
	}
	book, ok := LearnCodebook(&h)
	if !ok {
		return nil, blocks, nil
	}
	q := NewQuantizer(&book)
	for i, p := range params {
		if b := &blocks[i]; b.Period > 0 {
			*b = reblock(q, p.Momentum, p.Second, b.Period, workers)
		}
	}
	return &book, blocks, nil
}

// reblock makes blocks of a period of a parameter, whose momentum is overwritten.
func reblock(q *Quantizer, momentum, second []float32, period, workers int) Blocks {
	n := len(momentum) / period
	b := Blocks{Period: period, Index: make([]uint8, len(momentum)), Magnitude: make([]float32, n), Vmean: make([]float32, n)}
	per := max(1, taskElements/period)
	parallel(workers, (n+per-1)/per, func(task int) {
		from, end := task*per, min((task+1)*per, n)
		part := b.Slice(from, end)
		q.Requantize(part.Index, part.Magnitude, momentum[from*period:end*period], period)
		for i := range part.Vmean {
			part.Vmean[i] = Mean32(second[(from+i)*period : (from+i+1)*period])
		}
	})
	return b
}
