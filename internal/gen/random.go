package gen

import (
	"fmt"
	"math/rand/v2"
)

// Random is a small specification of any kind: one to six ranks, parameters of
// one to five dimensions, shorter than the world or empty, fresh, not sharded, in
// several groups and types, with any block length that divides a shard.
func Random(seed uint64) Spec {
	r := rand.New(rand.NewPCG(seed, 3))
	s := Spec{Seed: seed, World: 1 + r.IntN(6), Step: 1 + int64(r.IntN(50))}
	count := 0
	for range 1 + r.IntN(3) {
		var group []Param
		for range 1 + r.IntN(4) {
			p := Param{Name: fmt.Sprintf("Layer%d.Weight", count), Fresh: r.IntN(8) == 0, Plain: r.IntN(8) == 0}
			count++
			for range 1 + r.IntN(5) {
				p.Shape = append(p.Shape, 1+int64(r.IntN(6)))
			}
			if r.IntN(12) == 0 {
				p.Shape[r.IntN(len(p.Shape))] = 0
			}
			if r.IntN(3) == 0 {
				p.DType = "torch.bfloat16"
			}
			p.Period = 1 + int64(r.IntN(12))
			group = append(group, p)
		}
		s.Groups = append(s.Groups, group)
	}
	return s
}

// Decoder is the census of a decoder-like model of about total parameters: one
// embedding and equal layers.
func Decoder(seed uint64, world int, total, period int64) Spec {
	dim := int64(512)
	if total >= 200_000_000 {
		dim = 1024
	}
	matrices := []Param{{Name: "embed.weight", Shape: []int64{8192, dim}, Period: period}}
	var vectors []Param
	for left, layer := total-8192*dim, 0; left > 0; layer++ {
		for i, shape := range [][]int64{{3 * dim, dim}, {dim, dim}, {4 * dim, dim}, {dim, 4 * dim}} {
			matrices = append(matrices, Param{Name: fmt.Sprintf("layers.%d.w%d", layer, i), Shape: shape, Period: period})
			left -= shape[0] * shape[1]
		}
		for i := range 2 {
			vectors = append(vectors, Param{Name: fmt.Sprintf("layers.%d.b%d", layer, i), Shape: []int64{dim}, Period: period})
			left -= dim
		}
	}
	return Spec{Seed: seed, World: world, Step: 100, Groups: [][]Param{matrices, vectors}}
}
