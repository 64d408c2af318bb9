package reshard

// joinedPeriod is the period of a shard whose neighbouring blocks agree in
// magnitude and second moment, as those do that were one block before a shard was
// cut; 0 where they do not. It is for pieces with one codebook.
//
// It is the largest period by which every block lies in one run of equal blocks.
// Blocks of zeros agree wherever they come from, so they alone prove no cut.
func joinedPeriod(w *window, n int64) (int64, error) {
	j := joiner{period: n}
	for i := range w.pieces {
		pc := &w.pieces[i]
		if pc.Period == 0 {
			return 0, nil
		}
		first, last := pc.blocks()
		for b := first; b <= last; b += windowElements {
			to := min(b+windowElements, last+1)
			w.segments = w.segments[:0]
			if err := w.loadBlocks(i, 0, max(b*pc.Period, pc.From), min(to*pc.Period, pc.From+pc.Elements)-max(b*pc.Period, pc.From)); err != nil {
				return 0, err
			}
			for _, s := range w.segments {
				j.add(s, max(pc.cut(s.block), pc.At))
			}
			if j.period < pc.Period {
				return 0, nil
			}
		}
	}
	if !j.proved {
		return 0, nil
	}
	return j.period, nil
}

// joiner finds the largest period that divides the offset of every change of
// magnitude or second moment.
type joiner struct {
	before segment
	begun  bool
	period int64
	proved bool // blocks that are not zeros agree
}

func (j *joiner) add(s segment, offset int64) {
	switch {
	case !j.begun:
		j.begun = true
	case !same(s.magnitude, j.before.magnitude) || !same(s.vmean, j.before.vmean):
		j.period = gcd(j.period, offset)
	case s.magnitude != 0 || s.vmean != 0:
		j.proved = true
	}
	j.before = s
}
