package reshard

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"gefenckpt/gefen"
)

// points are what a new codebook is to be near to: momenta in units of their
// block's magnitude, with weights. Codewords of the source and other values are
// gathered apart, so that many of these do not blur those.
type points struct{ codewords, values cloud }

// cloud is weighted points: each for itself as long as they are few, then
// gathered in bins.
type cloud struct {
	weight map[float32]float64
	bins   []bin
}

type bin struct{ w, wx float64 }

// cloudSize is how many points a cloud has at most. Codewords are 32 times as far
// apart.
const cloudSize = 1 << 13

// add counts x, which is within [-1, 1]. Values that no optimizer makes, from
// magnitudes that are not finite, do not count.
func (c *cloud) add(x float32, w float64) {
	if !(x >= -1 && x <= 1 && w <= math.MaxFloat64) {
		return
	}
	if c.bins != nil {
		c.bins[min(int((x+1)*(cloudSize/2)), cloudSize-1)].add(x, w)
		return
	}
	if c.weight == nil {
		c.weight = map[float32]float64{}
	}
	c.weight[x] += w
	if len(c.weight) > cloudSize {
		c.bins = make([]bin, cloudSize)
		for _, x := range slices.Sorted(maps.Keys(c.weight)) {
			c.add(x, c.weight[x])
		}
		c.weight = nil
	}
}

func (b *bin) add(x float32, w float64) {
	b.w += w
	b.wx += float64(w * float64(x))
}

// point is one of a codebook's points.
type point struct{ x, w float64 }

func (c *cloud) list() []point {
	var out []point
	for _, x := range slices.Sorted(maps.Keys(c.weight)) {
		out = append(out, point{float64(x), c.weight[x]})
	}
	for _, b := range c.bins {
		if b.w > 0 {
			out = append(out, point{b.wx / b.w, b.w})
		}
	}
	return out
}

// codebook is the one with the least weighted sum of squared distances to the
// points: an exact k-means with its ends at -1 and +1.
func (p *points) codebook() *gefen.Codebook {
	all := slices.Concat(p.codewords.list(), p.values.list())
	// The ends are codewords in any case; a weight that is lost in rounding gives
	// each of them a point.
	const none = 1e-300
	all = append(all, point{-1, none}, point{1, none})
	slices.SortFunc(all, func(a, b point) int { return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.w, b.w)) })
	var x, w []float64
	for _, at := range all {
		switch last := len(x) - 1; {
		case last >= 0 && x[last] == at.x:
			w[last] += at.w
		case at.w > 0:
			x, w = append(x, at.x), append(w, at.w)
		}
	}
	centres, _ := gefen.KMeans(x, w, 256)
	var book gefen.Codebook
	for i := range book {
		book[i] = float32(centres[min(i, len(centres)-1)])
	}
	book[0], book[255] = -1, 1
	slices.Sort(book[:])
	return &book
}
