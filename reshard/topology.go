package reshard

import (
	"math"
	"math/bits"

	"gefenckpt/internal/fault"
)

// Topology is everything about the source that a plan depends on and that is
// known without reading its state.
type Topology struct {
	World  int // ranks of the source
	Params []Param
}

// Param is one parameter of the optimizer.
type Param struct {
	Name  string
	Shape []int64 // of the whole parameter

	// The options of the parameter's group that say how large an update is.
	LR, Beta1, Beta2, Eps, WeightDecay float64

	// Sharded says that ranks hold rows; otherwise every rank holds it whole,
	// in its own codebook.
	Sharded bool
	// Blockwise says that the second moment is one value per block; it is not for
	// GefenMuon and for a factored second moment, and then [Planes.Vmeans] has
	// nothing to give.
	Blockwise bool

	Shards []SourceShard // one per source rank
}

// SourceShard is what one source rank holds of one parameter.
type SourceShard struct {
	Row, Rows int64 // rows [Row, Row+Rows); Rows is 0 for an empty shard
	Period    int64 // 0: no state

	// The counters of the state; VmeanStep is Absent where the file has none, and
	// then counts as Step.
	Step, VmeanStep int64
}

// Absent is the value of a counter that the state does not have.
const Absent = -1

// Rows is the length of the first dimension; a scalar has one row.
func (p *Param) Rows() int64 {
	if len(p.Shape) == 0 {
		return 1
	}
	return p.Shape[0]
}

// RowElements is the number of elements of one row.
func (p *Param) RowElements() int64 {
	n := int64(1)
	for i := 1; i < len(p.Shape); i++ {
		n *= p.Shape[i]
	}
	return n
}

// elements is the number of elements of source rank r's shard.
func (p *Param) elements(r int) int64 { return p.Shards[r].Rows * p.RowElements() }

// blockBytes is what a block has beside its indices: magnitude and second moment.
func (p *Param) blockBytes() int64 {
	if p.Blockwise {
		return 8
	}
	return 4
}

// Chunk is the half-open range of rows that rank r of world holds: the rule of
// torch.chunk, by which trailing ranks may be empty.
func Chunk(rows int64, world, r int) (from, to int64) {
	size := rows / int64(world)
	if rows%int64(world) != 0 {
		size++
	}
	return min(int64(r)*size, rows), min(int64(r+1)*size, rows)
}

// validate says why a plan cannot be made of the topology, or nil.
func (t *Topology) validate() error {
	for i := range t.Params {
		p := &t.Params[i]
		if err := p.validate(t.World); err != nil {
			return err.In(p.Name)
		}
	}
	return nil
}

func (p *Param) validate(world int) *fault.Error {
	if len(p.Shards) != world {
		return fault.New(fault.Incomplete, "%d shards for %d ranks", len(p.Shards), world)
	}
	total := uint64(1)
	for _, d := range p.Shape {
		hi, lo := bits.Mul64(total, uint64(d))
		if d < 0 || hi != 0 || lo > math.MaxInt64/16 {
			return fault.New(fault.Corrupt, "shape %v cannot be", p.Shape)
		}
		total = lo
	}
	for r, s := range p.Shards {
		n := p.elements(r)
		switch {
		case s.Row < 0 || s.Rows < 0 || s.Row > p.Rows()-s.Rows:
			return fault.New(fault.Corrupt, "rank %d holds rows %d to %d, of %d", r, s.Row, s.Row+s.Rows, p.Rows())
		case !p.Sharded && s.Rows != p.Rows():
			return fault.New(fault.Corrupt, "rank %d holds %d of %d rows, but the parameter is not sharded", r, s.Rows, p.Rows())
		case s.Period < 0 || s.Period > 0 && (n == 0 || n%s.Period != 0):
			return fault.New(fault.Corrupt, "rank %d has blocks of %d elements in a shard of %d", r, s.Period, n)
		}
	}
	if p.Sharded {
		return p.validateTiling()
	}
	return nil
}

// validateTiling demands that each row is held by one rank.
func (p *Param) validateTiling() *fault.Error {
	next := int64(0)
	for _, pc := range p.pieces(0, p.Rows()) {
		if row := p.Shards[pc.Source].Row; row > next {
			return fault.New(fault.Incomplete, "no rank holds rows %d to %d", next, row).
				WithHint("the payload of a rank may be missing")
		} else if row < next {
			return fault.New(fault.Corrupt, "rank %d holds row %d, which another rank holds too", pc.Source, row)
		}
		next += p.Shards[pc.Source].Rows
	}
	if next != p.Rows() && p.RowElements() > 0 {
		return fault.New(fault.Incomplete, "no rank holds rows %d to %d", next, p.Rows()).
			WithHint("the payload of a rank may be missing")
	}
	return nil
}
