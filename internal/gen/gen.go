// Package gen makes valid checkpoints of any topology from a seed: small random
// ones for tests, and large ones, streamed, for measurements.
package gen

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
)

// Param is a parameter to make.
type Param struct {
	Name  string // with the model's case
	Shape []int64
	DType string // "" is torch.float32
	Fresh bool   // never had a gradient
	Plain bool   // not sharded: every rank holds it whole
	// Period is the block length on each rank; ranks with no elements, or a length
	// that does not divide their elements, get their whole shard as one block.
	Period int64
}

// Spec says what to make.
type Spec struct {
	Seed   uint64
	World  int
	Step   int64
	Groups [][]Param
}

// Compact makes a rank-local checkpoint whose tensors have Content: momenta of
// about 1e-3 relative to blocks, second moments that vary over orders of
// magnitude. Equal specs give equal bytes.
func Compact(s Spec) *checkpoint.Checkpoint {
	policy := false
	c := &checkpoint.Checkpoint{Form: checkpoint.Compact, Optimizer: checkpoint.Gefen, World: s.World, GlobalStep: s.Step, Deterministic: &policy,
		Mesh: &checkpoint.Mesh{DeviceType: "cpu", Shape: []int64{int64(s.World)}, DimNames: []string{"dp"}}}
	for r := range s.World {
		c.Mesh.Ranks = append(c.Mesh.Ranks, int64(r))
		c.Ranks = append(c.Ranks, checkpoint.Rank{GlobalRank: r, Coordinate: r})
	}
	for g, params := range s.Groups {
		group := checkpoint.Group{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: float64(g%2) * 0.1}
		var names, invented []pickle.Value
		for i, p := range params {
			group.Params = append(group.Params, len(c.Params))
			param := p.checkpoint(g, i)
			names, invented = append(names, param.Name), append(invented, false)
			for r := range c.Ranks {
				c.Ranks[r].Shards = append(c.Ranks[r].Shards, s.shard(&param, p, r, len(c.Params)))
			}
			c.Params = append(c.Params, param)
		}
		group.Fields = pickle.NewDict("param_names", pickle.NewList(names...), "param_names_synthesized", pickle.NewList(invented...),
			"lr", group.LR, "beta1", group.Beta1, "beta2", group.Beta2, "eps", group.Eps, "weight_decay", group.WeightDecay)
		c.Groups = append(c.Groups, group)
	}
	for r := range c.Ranks {
		if slices.ContainsFunc(c.Ranks[r].Shards, func(s checkpoint.Shard) bool { return s.State != nil }) {
			book := codebook(s.Seed + uint64(r))
			c.Ranks[r].Codebook = tensor.FromFloat32s([]int64{256}, book[:])
		}
	}
	return c
}

func (p Param) checkpoint(group, index int) checkpoint.Param {
	name := lower(p.Name)
	out := checkpoint.Param{Name: name, FQN: p.Name, Group: group, Index: index, Shape: p.Shape, DType: p.DType, Grad: true,
		Identifier: fmt.Sprintf("group_%d_param_%d_%s", group, index, name)}
	if out.DType == "" {
		out.DType = "torch.float32"
	}
	if !p.Plain {
		out.LocalDType = out.DType
		out.Placement = checkpoint.Placement{Type: "Shard", Module: checkpoint.PlacementModule}
	}
	return out
}

func (s *Spec) shard(param *checkpoint.Param, p Param, rank, index int) checkpoint.Shard {
	out := checkpoint.Shard{LocalShape: param.Shape}
	if param.Sharded() {
		out.LocalShape, out.Row = checkpoint.ChunkShape(param.Shape, s.World, rank)
	}
	n, _ := tensor.Volume(out.LocalShape)
	if p.Fresh || n == 0 {
		return out
	}
	period := p.Period
	if period < 1 || n%period != 0 {
		period = n
	}
	seed := s.Seed*1_000_003 + uint64(index)*8191 + uint64(rank)
	if !param.Sharded() { // replicas are equal
		seed = s.Seed*1_000_003 + uint64(index)*8191
	}
	plane := func(kind uint64, d tensor.DType, shape ...int64) *tensor.Tensor {
		count, _ := tensor.Volume(shape)
		return &tensor.Tensor{DType: d, Shape: shape, Content: &noise{seed: seed*4 + kind, count: count, float: d == tensor.Float32}}
	}
	out.State = &checkpoint.State{Period: period, Step: s.Step, VmeanStep: s.Step, FactoredStep: checkpoint.Absent, NormuonStep: checkpoint.Absent,
		Index:     plane(0, tensor.Uint8, n/period, period),
		Magnitude: plane(1, tensor.Float32, n/period, 1),
		Vmean:     plane(2, tensor.Float32, n/period, 1)}
	return out
}

// codebook is sorted and reaches from -1 to +1.
func codebook(seed uint64) [256]float32 {
	r := rand.New(rand.NewPCG(seed, 11))
	var book [256]float32
	for i := range book {
		book[i] = float32(math.Tanh(r.NormFloat64() / 2))
	}
	book[0], book[255] = -1, 1
	slices.Sort(book[:])
	return book
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// noise is a plane of bytes, or of float32 values from 1e-6 to 1e-2, that follow
// from the seed. It is a tensor.Content.
type noise struct {
	seed  uint64
	count int64
	float bool
}

// Size is in bytes.
func (n *noise) Size() int64 {
	if n.float {
		return 4 * n.count
	}
	return n.count
}

// WriteTo makes the plane chunk by chunk.
func (n *noise) WriteTo(w io.Writer) (int64, error) {
	r := rand.New(rand.NewPCG(n.seed, 7))
	buffer := make([]byte, 1<<20)
	var written int64
	for written < n.Size() {
		b := buffer[:min(n.Size()-written, int64(len(buffer)))]
		if n.float {
			for i := 0; i < len(b); i += 4 {
				v := float32(math.Ldexp(1+r.Float64(), -20+r.IntN(14)))
				binary.LittleEndian.PutUint32(b[i:], math.Float32bits(v))
			}
		} else {
			var word [8]byte
			for i := 0; i < len(b); i += 8 {
				binary.LittleEndian.PutUint64(word[:], r.Uint64())
				copy(b[i:], word[:])
			}
		}
		k, err := w.Write(b)
		written += int64(k)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
