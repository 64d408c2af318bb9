package reshard

import (
	"math"

	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// Fidelity says what a plan must keep.
type Fidelity string

// The fidelities.
const (
	// Lossless keeps every momentum and second moment, bit for bit.
	Lossless Fidelity = "lossless"
	// Balanced keeps to a budget of bytes, and within it makes the least error in
	// the next update.
	Balanced Fidelity = "balanced"
	// Reference does what GefenDCPState does on the target's ranks.
	Reference Fidelity = "reference"
)

// Options say what to plan.
type Options struct {
	World     int // ranks of the target
	Fidelity  Fidelity
	MaxGrowth float64          // balanced: bytes per parameter above the source's, as a fraction
	Periods   gefen.PeriodRule // reference: what the loading optimizer forces to period 1
	// First and Last plan target ranks [First, Last) alone, to be put together with
	// those of other plans by Assemble; 0, 0 plans all.
	First, Last int
}

// Operation says what becomes of elements, from the least to the most that is
// done to them.
type Operation uint8

// The operations.
const (
	None       Operation = iota // no elements, or no state
	Keep                        // blocks as they are
	Split                       // blocks cut; each part keeps magnitude and second moment
	Join                        // equal neighbouring blocks become the one that they were cut from
	Requantize                  // indices renamed to another codebook, magnitude and second moment kept
	Coarsen                     // blocks that span several source blocks
	Expand                      // period 1: magnitude |m|, index -1 or +1
	Relearn                     // period, codebook and indices as GefenDCPState makes them
)

var operations = [...]string{"none", "keep", "split", "join", "requantize", "coarsen", "expand", "relearn"}

// String is the operation's name in reports.
func (o Operation) String() string { return operations[o] }

// Plan says how the state of the source becomes that of the target.
type Plan struct {
	Fidelity Fidelity
	Ranks    []Rank // one per target rank

	// Bytes of indices, magnitudes and second moments over all ranks, and the
	// elements that have them. Bytes and elements of source and target differ
	// where a parameter is held by every rank.
	BytesBefore, BytesAfter       int64
	ElementsBefore, ElementsAfter int64
	Error                         Error // over all target ranks; parameters that every rank holds count once

	// LowerBound is what BytesAfter is proved not to be able to undercut (lossless).
	LowerBound int64
	// Warnings say what was carried though ranks contradict each other.
	Warnings []*fault.Error

	topology *Topology
	gaps     []int64 // by rank: how far the lower bound is below its bytes
}

// Rank is the plan of one target rank.
type Rank struct {
	Codebook *gefen.Codebook // nil where no shard has state
	Origin   Origin
	From     int // the source rank whose codebook is kept, where Origin is Kept
	// Remap gives, by source rank, the new index of each old one; nil where the
	// indices stay.
	Remap  []*[256]uint8
	Shards []Shard // parallel to Topology.Params

	Bytes  int64
	Budget int64 // balanced: what Bytes may be
	Error  Error
}

// Origin says where a target rank's codebook comes from.
type Origin string

// The origins.
const (
	Kept   Origin = "kept"   // one source rank's, unchanged
	Merged Origin = "merged" // every codeword in use, of several source ranks
	Learnt Origin = "learnt" // the best 256 for the momentum of several source ranks
)

// Shard is the plan of one target rank's part of one parameter.
type Shard struct {
	Row, Rows       int64
	Elements        int64
	Period          int64 // 0: no state
	Step, VmeanStep int64 // VmeanStep is Absent where no source has it
	Operation       Operation
	Pieces          []Piece // in order, without gaps; none where there is no state

	BytesBefore int64 // of the same elements in the source; part of a block counts in proportion
	BytesAfter  int64
	Error       Error
	measured    bool // Error is complete
}

// Blocks is the number of blocks.
func (s *Shard) Blocks() int64 {
	if s.Period == 0 {
		return 0
	}
	return s.Elements / s.Period
}

// Piece is a run of consecutive elements that come from one source rank:
// [From, From+Elements) there, [At, At+Elements) here.
type Piece struct {
	Source    int // rank; the elements are zeros where it has no state
	From, At  int64
	Elements  int64
	Period    int64 // of the source's blocks; 0: no state
	Operation Operation
}

// Verbatim says that the piece's index bytes stay as they are.
func (r *Rank) Verbatim(pc *Piece) bool {
	return pc.Period > 0 && pc.Operation <= Join && r.Remap[pc.Source] == nil
}

// Error is what a plan loses, in sums of squares over elements against the
// source, and the sums of squares of the source itself, which are 0 where the
// state was not read because nothing is lost. Update is about the step that the
// two moments would make alone, lr/bc1 * m / (sqrt(v/bc2) + eps).
type Error struct {
	Momentum, Momentum2         float64
	SecondMoment, SecondMoment2 float64
	Update, Update2             float64
}

// MomentumRelL2 is the relative L2 error of the momentum.
func (e Error) MomentumRelL2() float64 { return relative(e.Momentum, e.Momentum2) }

// SecondMomentRelL2 is the relative L2 error of the second moment.
func (e Error) SecondMomentRelL2() float64 { return relative(e.SecondMoment, e.SecondMoment2) }

// UpdateRelL2 is the relative L2 error of the update that the state makes.
func (e Error) UpdateRelL2() float64 { return relative(e.Update, e.Update2) }

func relative(lost, whole float64) float64 {
	if lost == 0 {
		return 0
	}
	return math.Sqrt(lost / whole)
}

func (e *Error) add(o Error) {
	e.Momentum += o.Momentum
	e.Momentum2 += o.Momentum2
	e.SecondMoment += o.SecondMoment
	e.SecondMoment2 += o.SecondMoment2
	e.Update += o.Update
	e.Update2 += o.Update2
}
