package reshard

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

	// The counters of the state; VmeanStep is -1 where the file has none, and
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
	if len(p.Shape) > 1 {
		for _, d := range p.Shape[1:] {
			n *= d
		}
	}
	return n
}

// elements is the number of elements of source rank r's shard.
func (p *Param) elements(r int) int64 { return p.Shards[r].Rows * p.RowElements() }

// Chunk is the half-open range of rows that rank r of world holds: the rule of
// torch.chunk, by which trailing ranks may be empty.
func Chunk(rows int64, world, r int) (from, to int64) {
	size := (rows + int64(world) - 1) / int64(world)
	return min(int64(r)*size, rows), min(int64(r+1)*size, rows)
}
