package gefen

import "math"

// MuonOptions are the hyperparameters of a GefenMuon group beside those that it has
// in common with Gefen's, of which Eps is Newton-Schulz's.
type MuonOptions struct {
	Momentum float64
	Nesterov bool
	// Schedule has the coefficients a, b, c of every Newton-Schulz iteration.
	Schedule [][3]float64
	// AdjustLR is adjust_lr_fn: "original", which "" means too, or "match_rms_adamw".
	AdjustLR string

	Normuon      bool
	NormuonBeta2 float64
	NormuonEps   float64
	Cautious     bool
}

// MuonStep is one step of the momentum of one of GefenMuon's parameters. Unlike
// Gefen's, it is held in the gradient's type and rounded to it at every operation.
type MuonStep struct {
	n         int // elements of the parameter
	dtype     DType
	fused     bool
	quantizer *Quantizer
	codewords Codebook // in the gradient's type
	momentum  float32
	weight    float32 // 1-momentum
	nesterov  bool
}

// NewMuonStep prepares a step of a parameter of n elements of type d. q is the
// quantizer of codebook c.
func (a Arithmetic) NewMuonStep(o MuonOptions, n int, d DType, c *Codebook, q *Quantizer) *MuonStep {
	s := &MuonStep{
		n:         n,
		dtype:     d,
		fused:     !a.NoFMA,
		quantizer: q,
		codewords: *c,
		momentum:  float32(o.Momentum),
		weight:    float32(1 - o.Momentum),
		nesterov:  o.Nesterov,
	}
	d.round(s.codewords[:])
	return s
}

// Blocks advances the momentum of the blocks b, which begin at element first of the
// parameter, by the gradient g of their elements, and sets out to what Newton-Schulz
// takes: the requantized momentum, or Nesterov's look ahead from it. b.Vmean is not
// used.
func (s *MuonStep) Blocks(out, g []float32, b Blocks, first int) {
	for i, mag := range b.Magnitude {
		at, end := i*b.Period, (i+1)*b.Period
		m, g, index := out[at:end], g[at:end], b.Index[at:end]
		s.dequantize(m, index, mag)
		s.lerp(m, g)
		mag = AbsMax(m)
		b.Magnitude[i] = mag
		if mag > 0 {
			divisor := max(mag, smallestNormal)
			for k, v := range m {
				m[k] = v / divisor
			}
			s.dtype.round(m)
		}
		s.quantizer.Nearest(index, m)
		s.dequantize(m, index, mag)
	}
	if s.nesterov {
		for k := range out {
			out[k] *= s.momentum
		}
		s.dtype.round(out)
		s.addScaled(out, g, s.weight, first)
	}
}

// smallestNormal is the smallest normal float32, and bfloat16.
const smallestNormal = 0x1p-126

// dequantize sets m to a block's momentum.
func (s *MuonStep) dequantize(m []float32, index []uint8, mag float32) {
	for k, code := range index {
		m[k] = s.codewords[code] * mag
	}
	s.dtype.round(m)
}

// lerp moves the momentum m towards the gradient g.
func (s *MuonStep) lerp(m, g []float32) {
	weight, far := lerpWeight(s.weight)
	for k, to := range g {
		end := m[k]
		if far {
			end = to
		}
		m[k] = mulAdd32(s.fused, weight, to-m[k], end)
	}
	s.dtype.round(m)
}

// addScaled adds factor*x to m, which begins at element first of the parameter.
//
// PyTorch does so for bfloat16 in vectors of 32 elements, with the factor rounded to
// bfloat16. What is left at the parameter's end, and all of it where products are not
// fused, is added element by element, with products rounded to bfloat16.
func (s *MuonStep) addScaled(m, x []float32, factor float32, first int) {
	if s.dtype != BFloat16 {
		for k, v := range x {
			m[k] = mulAdd32(s.fused, v, factor, m[k])
		}
		return
	}
	factor = RoundBFloat16(factor)
	vectors := 0
	if s.fused {
		vectors = min(max(s.n/32*32-first, 0), len(x))
	}
	for k, v := range x[:vectors] {
		m[k] = RoundBFloat16(FMA32(v, factor, m[k]))
	}
	for k, v := range x[vectors:] {
		m[vectors+k] = RoundBFloat16(m[vectors+k] + RoundBFloat16(v*factor))
	}
}

// apply decays the parameter's values p of the given whole shape and adds the update u
// to them, scaled by the learning rate.
func (s *MuonStep) apply(o Options, shape []int64, p, u []float32) {
	if o.WeightDecay > 0 {
		decay := float32(1 - float64(o.LR*o.WeightDecay))
		for i := range p {
			p[i] *= decay
		}
		s.dtype.round(p)
	}
	rows, cols := float64(shape[0]), float64(shape[1])
	ratio := math.Sqrt(max(1, rows/cols))
	if o.Muon.AdjustLR == "match_rms_adamw" {
		ratio = 0.2 * math.Sqrt(max(rows, cols))
	}
	s.addScaled(p, u, float32(-(o.LR * ratio)), 0)
}
