package gefen

// Absent is the value of a counter that the state does not have.
const Absent = -1

// State is what Gefen keeps of one parameter on one rank, of whose n elements it
// makes n/Period blocks of Period consecutive ones. The zero value is the state of a
// parameter that had no gradient yet. A counter exists with the tensor that it tells
// the age of.
type State struct {
	Period int
	Step   int64 // steps in which the parameter had a gradient

	Index     []uint8   // n; nil without momentum
	Magnitude []float32 // one per block

	Vmean     []float32 // one per block; nil where the second moment is only factored
	VmeanStep int64     // Absent in states of old: Vmean is then as old as Step

	Factored     // nil where the second moment is only by blocks
	FactoredStep int64

	NormuonV    []float32 // one per row; nil without NorMuon
	NormuonStep int64
}

// Blocks is the part of the state that is kept per block.
func (s *State) Blocks() Blocks {
	return Blocks{Period: s.Period, Index: s.Index, Magnitude: s.Magnitude, Vmean: s.Vmean}
}

// begin makes the momentum of a parameter of n elements that had no gradient yet.
func (s *State) begin(n int) {
	if s.Index == nil {
		s.Index = make([]uint8, n)
		s.Magnitude = make([]float32, n/s.Period)
	}
}

// age advances the counters of a state with a second moment by blocks, which it
// makes where there is none.
func (s *State) age() {
	switch {
	case s.Vmean == nil:
		s.Vmean, s.VmeanStep = make([]float32, len(s.Magnitude)), 0
	case s.VmeanStep == Absent:
		s.VmeanStep = s.Step
	}
	s.Step++
	s.VmeanStep++
}

// ageFactored advances the counters of a state with a factored second moment, which
// it makes where there is none.
func (s *State) ageFactored(rows, cols int) {
	if s.Row == nil {
		s.Row, s.Col, s.FactoredStep = make([]float32, rows), make([]float32, cols), 0
	}
	s.Step++
	s.FactoredStep++
}

// ShardedMode is the sharded_mode of a GefenMuon group; empty for Gefen itself.
type ShardedMode string

// The modes.
const (
	Plain       ShardedMode = ""
	Approx      ShardedMode = "approx"
	Exact       ShardedMode = "exact"
	Distributed ShardedMode = "distributed"
)

// Parameter is one parameter of an optimizer on one rank.
type Parameter struct {
	Name    string
	Shape   []int64 // of the whole parameter
	Local   []int64 // of what this rank holds of it
	Sharded bool    // a DTensor, even on one rank
	Mode    ShardedMode
	DType   DType
	Group   int       // index of the parameter's options
	Values  []float32 // of what the state is of, row-major; nil where unknown
	State   State
}

// held is the shape of what the state is of: the rank's part, or all of a parameter
// that GefenMuon steps as a whole.
func (p *Parameter) held() []int64 {
	if p.Mode == Exact || p.Mode == Distributed {
		return p.Shape
	}
	return p.Local
}
