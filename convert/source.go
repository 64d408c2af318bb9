package convert

import (
	"encoding/binary"
	"math"
	"sync"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/moments"
	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
	"gefenckpt/reshard"
)

// topology is what a reshard needs to know of a checkpoint without reading its
// state. Source ranks are counted in the order of the mesh, which is that of the
// rows.
func topology(c *checkpoint.Checkpoint) (*reshard.Topology, error) {
	t := &reshard.Topology{World: len(c.Ranks)}
	for i := range c.Params {
		p := &c.Params[i]
		if len(p.Shape) == 0 && p.Sharded() || p.Placement.Type != "" && !p.Placement.Rows() {
			return nil, fault.New(fault.Unsupported, "it is %s of %v; only Shard(0) is resharded", p.Placement, p.Shape).In(p.Name)
		}
		g := &c.Groups[p.Group]
		out := reshard.Param{Name: p.Name, Shape: p.Shape, LR: g.LR, Beta1: g.Beta1, Beta2: g.Beta2, Eps: g.Eps,
			WeightDecay: g.WeightDecay, Sharded: p.Sharded(), Blockwise: true}
		for r := range c.Ranks {
			s := &c.Ranks[r].Shards[i]
			shard := reshard.SourceShard{Row: s.Row, Rows: p.Rows(), Step: reshard.Absent, VmeanStep: reshard.Absent}
			if p.Sharded() {
				shard.Rows = s.LocalShape[0]
			}
			if s.State != nil && s.State.Index != nil {
				shard.Period, shard.Step, shard.VmeanStep = s.State.Period, s.State.Step, s.State.VmeanStep
				if s.State.Vmean == nil {
					out.Blockwise = false
				}
				if s.State.VRow != nil {
					return nil, fault.New(fault.Unsupported, "its second moment is factored (v_row, v_col), which does not follow rows").In(p.Name)
				}
			}
			out.Shards = append(out.Shards, shard)
		}
		t.Params = append(t.Params, out)
	}
	return t, nil
}

// stateSource reads a checkpoint's state for a reshard. It is a reshard.Source.
type stateSource struct {
	c     *checkpoint.Checkpoint
	books []func() (*gefen.Codebook, error)
}

func newStateSource(c *checkpoint.Checkpoint) *stateSource {
	s := &stateSource{c: c}
	for _, r := range c.Ranks {
		s.books = append(s.books, sync.OnceValues(func() (*gefen.Codebook, error) {
			if r.Codebook == nil {
				return nil, nil
			}
			return moments.Codebook(r.Codebook)
		}))
	}
	return s
}

// Codebook implements reshard.Source.
func (s *stateSource) Codebook(rank int) (*gefen.Codebook, error) { return s.books[rank]() }

// Indices implements reshard.Source.
func (s *stateSource) Indices(dst []uint8, param, rank int, from int64) error {
	return s.place(s.c.Ranks[rank].Shards[param].State.Index.ReadAt(dst, from), param, rank, checkpoint.KeyIndex)
}

// Magnitudes implements reshard.Source.
func (s *stateSource) Magnitudes(dst []float32, param, rank int, from int64) error {
	return s.place(readFloats(s.c.Ranks[rank].Shards[param].State.Magnitude, dst, from), param, rank, checkpoint.KeyMagnitude)
}

// Vmeans implements reshard.Source.
func (s *stateSource) Vmeans(dst []float32, param, rank int, from int64) error {
	return s.place(readFloats(s.c.Ranks[rank].Shards[param].State.Vmean, dst, from), param, rank, checkpoint.KeyVmean)
}

func (s *stateSource) place(err error, param, rank int, key string) error {
	if err == nil {
		return nil
	}
	return fault.Within(err, s.c.Path, rankItem(s.c.Ranks[rank].GlobalRank, s.c.Params[param].Name)+"."+key)
}

// floatBuffers hold raw bytes on their way to float32.
var floatBuffers = sync.Pool{New: func() any { return new([]byte) }}

// readFloats reads magnitudes or second moments.
func readFloats(t *tensor.Tensor, dst []float32, from int64) error {
	buffer := floatBuffers.Get().(*[]byte)
	defer floatBuffers.Put(buffer)
	if cap(*buffer) < 4*len(dst) {
		*buffer = make([]byte, 4*len(dst))
	}
	raw := (*buffer)[:4*len(dst)]
	if err := t.ReadAt(raw, from); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return moments.CheckScales(dst, from)
}
