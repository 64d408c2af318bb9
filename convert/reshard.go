package convert

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
	"gefenckpt/reshard"
)

func rankItem(rank int, name string) string { return fmt.Sprintf("rank %d: %s", rank, name) }

// resharded is c on o.World ranks: its states have Content that the plan makes
// from c's while they are written.
func (j *job) resharded(c *checkpoint.Checkpoint) (*checkpoint.Checkpoint, error) {
	t, err := topology(c)
	if err != nil {
		return nil, err
	}
	src := newStateSource(c)
	o := reshard.Options{World: j.o.World, Fidelity: reshard.Fidelity(j.o.Fidelity), MaxGrowth: j.o.MaxGrowth}
	var plan *reshard.Plan
	if j.parts != nil {
		plan, err = reshard.Assemble(t, o, j.parts.ranks)
	} else {
		if j.o.Part.Of > 0 {
			o.First, o.Last = j.o.Part.ranks(j.o.World)
		}
		plan, err = reshard.New(t, src, o)
	}
	if err != nil {
		return nil, err
	}
	j.plan = plan
	for _, w := range plan.Warnings {
		j.result.Warnings = append(j.result.Warnings, w.File(c.Path))
	}
	out := *c
	out.World = j.o.World
	out.Ranks = nil
	for r := range plan.Ranks {
		out.Ranks = append(out.Ranks, targetRank(c, plan, src, r))
	}
	j.reportPlan(plan, t)
	return &out, nil
}

func targetRank(c *checkpoint.Checkpoint, plan *reshard.Plan, src reshard.Source, r int) checkpoint.Rank {
	planned := &plan.Ranks[r]
	rank := checkpoint.Rank{GlobalRank: r, Coordinate: r}
	if planned.Codebook != nil {
		rank.Codebook = tensor.FromFloat32s([]int64{256}, planned.Codebook[:])
	}
	for p := range c.Params {
		s := &planned.Shards[p]
		param := &c.Params[p]
		shard := checkpoint.Shard{LocalShape: param.Shape, Row: s.Row}
		if param.Sharded() {
			shard.LocalShape = append([]int64{s.Rows}, param.Shape[1:]...)
		}
		if s.Period > 0 && s.Elements > 0 {
			shard.State = targetState(plan, src, r, p, s)
		}
		rank.Shards = append(rank.Shards, shard)
	}
	return rank
}

func targetState(plan *reshard.Plan, src reshard.Source, r, p int, s *reshard.Shard) *checkpoint.State {
	open := func() (*reshard.Planes, error) { return plan.Open(src, r, p) }
	floats := func(read func(*reshard.Planes, []float32, int64) error) *tensor.Tensor {
		return &tensor.Tensor{DType: tensor.Float32, Shape: []int64{s.Blocks(), 1}, Content: &floatPlane{open, read, s.Blocks()}}
	}
	return &checkpoint.State{
		Period: s.Period, Step: s.Step, VmeanStep: s.VmeanStep, FactoredStep: checkpoint.Absent, NormuonStep: checkpoint.Absent,
		Index:     &tensor.Tensor{DType: tensor.Uint8, Shape: []int64{s.Blocks(), s.Period}, Content: &indexPlane{open, s.Elements}},
		Magnitude: floats((*reshard.Planes).Magnitudes),
		Vmean:     floats((*reshard.Planes).Vmeans),
	}
}

// planeChunk is how many elements of a plane are made at a time.
const planeChunk = 1 << 18

// indexPlane is the indices of a target shard; a tensor.Content.
type indexPlane struct {
	open func() (*reshard.Planes, error)
	n    int64
}

// Size is in bytes.
func (x *indexPlane) Size() int64 { return x.n }

// WriteTo makes the plane chunk by chunk.
func (x *indexPlane) WriteTo(w io.Writer) (int64, error) {
	planes, err := x.open()
	if err != nil {
		return 0, err
	}
	buffer := make([]byte, min(x.n, planeChunk))
	var written int64
	for written < x.n {
		chunk := buffer[:min(x.n-written, planeChunk)]
		if err := planes.Indices(chunk, written); err != nil {
			return written, err
		}
		n, err := w.Write(chunk)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// floatPlane is the magnitudes or second moments of a target shard; a
// tensor.Content.
type floatPlane struct {
	open func() (*reshard.Planes, error)
	read func(*reshard.Planes, []float32, int64) error
	n    int64
}

// Size is in bytes.
func (x *floatPlane) Size() int64 { return 4 * x.n }

// WriteTo makes the plane chunk by chunk.
func (x *floatPlane) WriteTo(w io.Writer) (int64, error) {
	planes, err := x.open()
	if err != nil {
		return 0, err
	}
	values := make([]float32, min(x.n, planeChunk))
	raw := make([]byte, 4*len(values))
	var written int64
	for from := int64(0); from < x.n; from += planeChunk {
		chunk := values[:min(x.n-from, planeChunk)]
		if err := x.read(planes, chunk, from); err != nil {
			return written, err
		}
		for i, v := range chunk {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		n, err := w.Write(raw[:4*len(chunk)])
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// reportPlan notes what the plan does to each shard, and what it costs.
func (j *job) reportPlan(plan *reshard.Plan, t *reshard.Topology) {
	r := j.result
	r.Fidelity = string(j.o.Fidelity)
	r.MomentumRelL2, r.SecondMomentRelL2 = plan.Error.MomentumRelL2(), plan.Error.SecondMomentRelL2()
	r.BytesPerParameter.Target = perElement(plan.BytesAfter, plan.ElementsAfter)
	first, last := 0, len(plan.Ranks)
	if j.o.Part.Of > 0 {
		first, last = j.o.Part.ranks(last)
	}
	for p := range t.Params {
		param := manifest.Parameter{Name: t.Params[p].Name}
		for rank := first; rank < last; rank++ {
			s := &plan.Ranks[rank].Shards[p]
			param.Ranks = append(param.Ranks, manifest.Shard{Rank: rank, Regime: s.Operation.String(), Period: s.Period,
				BytesBefore: s.BytesBefore, BytesAfter: s.BytesAfter,
				MomentumRelL2: s.Error.MomentumRelL2(), SecondMomentRelL2: s.Error.SecondMomentRelL2()})
		}
		r.Parameters = append(r.Parameters, param)
	}
}

func perElement(bytes, elements int64) float64 {
	if elements == 0 {
		return 0
	}
	return float64(bytes) / float64(elements)
}

// checkWorld refuses a number of ranks that cannot be.
func checkWorld(world int) error {
	if world < 1 || world > 1<<16 {
		return fault.New(fault.Usage, "a world of %d ranks", world).WithHint("give a number from 1 to 65536")
	}
	return nil
}
