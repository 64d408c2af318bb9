package reshard

// usage is what a piece's momenta have of each codeword. Blocks of magnitude 0
// do not count: of theirs, only signs matter.
type usage struct {
	count    [256]int64
	weight   [256]float64 // sum of magnitude^2
	update   [256]float64 // sum of (rate*magnitude/h)^2
	square   float64      // sum of second moment^2
	elements float64      // that have a second moment
}

// squares are the sums of m^2 and of (rate*m/h)^2.
func (u *usage) squares(c *codes) (momentum, update float64) {
	for k, n := range u.count {
		if n > 0 {
			x := float64(c.book[k]) * float64(c.book[k])
			momentum += float64(u.weight[k] * x)
			update += float64(u.update[k] * x)
		}
	}
	return momentum, update
}

// usages reads the usage of every piece of a shard.
func (x *Planes) usages() ([]usage, error) {
	out := make([]usage, len(x.pieces))
	err := x.window.each(0, x.shard.Elements, true, func(int64) error {
		for _, s := range x.window.segments {
			out[s.piece].add(s, x.window.indices[s.at:s.at+s.n], &x.outlook)
		}
		return nil
	})
	return out, err
}

func (u *usage) add(s segment, indices []uint8, o *outlook) {
	n, v := float64(s.n), float64(s.vmean)
	u.square += float64(n * v * v)
	if s.vmean > 0 {
		u.elements += n
	}
	if s.magnitude == 0 {
		return
	}
	a := float64(s.magnitude)
	weight := a * a
	rate := o.rate * a / o.root(o.corrected(s.vmean))
	update := rate * rate
	if len(indices) < 512 {
		for _, k := range indices {
			u.count[k]++
			u.weight[k] += weight
			u.update[k] += update
		}
		return
	}
	var count [256]int32
	for _, k := range indices {
		count[k]++
	}
	for k, c := range count {
		if c > 0 {
			u.count[k] += int64(c)
			u.weight[k] += float64(float64(c) * weight)
			u.update[k] += float64(float64(c) * update)
		}
	}
}

// spread is the mean square of what a codebook loses, in units of magnitude^2,
// when it stands for values in between: a twelfth of the square of the distance
// between codewords, over those in use.
func (u *usage) spread(c *codes) (lost, count float64) {
	for k, n := range u.count {
		if n == 0 {
			continue
		}
		d := float64(c.book[min(k+1, 255)]-c.book[max(k-1, 0)]) / float64(min(k+1, 255)-max(k-1, 0))
		lost += float64(float64(n) * d * d / 12)
		count += float64(n)
	}
	return lost, count
}
