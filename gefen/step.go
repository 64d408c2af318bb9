package gefen

import "math"

// Options are the hyperparameters of a parameter group, as the Python floats that
// Gefen keeps. A learning rate kept as a tensor is its float32 value, widened.
type Options struct {
	LR          float64
	Beta1       float64
	Beta2       float64
	Eps         float64
	WeightDecay float64
	Muon        *MuonOptions // of a GefenMuon group; nil for Gefen's
}

// Arithmetic is how the reference was built.
type Arithmetic struct {
	// NoFMA rounds products before they are added, as PyTorch does on processors
	// without fused multiply-add, or with ATEN_CPU_CAPABILITY=default.
	NoFMA bool
}

// Step is one step of one parameter: the group's hyperparameters and the bias
// corrections of the parameter's age, each rounded to float32 where it meets a
// tensor. Its methods step ranges of whole blocks, in any order and from any number
// of goroutines: no bit depends on how the blocks are divided.
type Step struct {
	dtype     DType
	fused     bool
	quantizer *Quantizer
	codewords Codebook // in the gradient's type

	weight  float32 // 1-beta1, what the gradient adds to the momentum
	keep    float32 // beta2
	add     float32 // 1-beta2
	bc2     float32 // bias correction of a factored second moment
	rootBC2 float32 // and its root, of a second moment by blocks
	invBC1  float32
	eps     float32
	lr      float32
	decay   float32 // 1 - lr*weight decay, exactly 1 without
}

// NewStep prepares a step of a parameter of type d. age is the parameter's Step and
// secondAge its VmeanStep, or FactoredStep, after this step: at least 1. q is the
// quantizer of codebook c.
func (a Arithmetic) NewStep(o Options, d DType, c *Codebook, q *Quantizer, age, secondAge int64) *Step {
	bc1 := biasCorrection(o.Beta1, age)
	bc2 := biasCorrection(o.Beta2, secondAge)
	s := &Step{
		dtype:     d,
		fused:     !a.NoFMA,
		quantizer: q,
		codewords: *c,
		weight:    float32(1 - o.Beta1),
		keep:      float32(o.Beta2),
		add:       float32(1 - o.Beta2),
		bc2:       float32(bc2),
		rootBC2:   float32(math.Sqrt(bc2)),
		invBC1:    float32(1 / bc1),
		eps:       float32(o.Eps),
		lr:        float32(o.LR),
		decay:     float32(1 - float64(o.LR*o.WeightDecay)),
	}
	d.round(s.codewords[:])
	return s
}
