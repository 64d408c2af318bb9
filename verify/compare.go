package verify

import (
	"math"

	"gefenckpt/format/moments"
)

// Difference is how far a float32 plane is from the plane it should be.
type Difference struct {
	// RelL2 is |got - want| / |want|, both Euclidean norms in float64. It is 0
	// where both planes are zero, and +Inf where only want is.
	RelL2 float64 `json:"rel_l2"`
	// MaxAbs is the largest |got - want|, and Worst the element where it is,
	// counted row-major over the parameter.
	MaxAbs float64 `json:"max_abs"`
	Worst  int64   `json:"worst"`
	// Elements differ in value; Bits differ in their bits (a zero's sign too).
	Elements int64 `json:"elements"`
	Bits     int64 `json:"bits"`
}

// sums accumulates a Difference.
type sums struct {
	err2, want2    float64
	maxAbs         float64
	worst          int64
	elements, bits int64
}

// add compares got with want, whose first element is number from. NaN where the
// other is not NaN counts as infinitely far.
func (s *sums) add(got, want []float32, from int64) {
	for i, w := range want {
		g := got[i]
		s.want2 += float64(w) * float64(w)
		if math.Float32bits(g) == math.Float32bits(w) {
			continue
		}
		s.bits++
		if g == w {
			continue
		}
		s.elements++
		d := math.Abs(float64(g) - float64(w))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		s.err2 += d * d
		if d > s.maxAbs || s.elements == 1 {
			s.maxAbs, s.worst = d, from+int64(i)
		}
	}
}

func (s *sums) merge(o sums) {
	if o.maxAbs > s.maxAbs || s.elements == 0 {
		s.maxAbs, s.worst = o.maxAbs, o.worst
	}
	s.err2 += o.err2
	s.want2 += o.want2
	s.elements += o.elements
	s.bits += o.bits
}

func (s *sums) difference() Difference {
	return Difference{RelL2: relative(s.err2, s.want2), MaxAbs: s.maxAbs, Worst: s.worst, Elements: s.elements, Bits: s.bits}
}

// relative is sqrt(err2/want2), 0 where both are 0.
func relative(err2, want2 float64) float64 {
	if err2 == 0 {
		return 0
	}
	return math.Sqrt(err2 / want2)
}

// chunkElements is how many elements are compared at a time.
const chunkElements = 1 << 16

// planes compares all elements of two readers of equal length.
type planes struct{ momentum, second sums }

func comparePlanes(got, want moments.Reader) (planes, error) {
	var p planes
	a, b := make([]float32, chunkElements), make([]float32, chunkElements)
	for from := int64(0); from < want.Len(); from += chunkElements {
		n := min(want.Len()-from, chunkElements)
		for _, plane := range []struct {
			read func(moments.Reader, []float32, int64) error
			sums *sums
		}{{moments.Reader.Momentum, &p.momentum}, {moments.Reader.SecondMoment, &p.second}} {
			if err := plane.read(got, a[:n], from); err != nil {
				return p, err
			}
			if err := plane.read(want, b[:n], from); err != nil {
				return p, err
			}
			plane.sums.add(a[:n], b[:n], from)
		}
	}
	return p, nil
}
