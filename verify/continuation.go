package verify

import (
	"context"
	"math"
	"math/rand/v2"

	"gefenckpt/format/checkpoint"
	"gefenckpt/gefen"
)

// continuation is how one parameter goes on from both checkpoints.
type continuation struct {
	steps []stepSums
	noise noiseSums
}

// stepSums compare the state after a step, and the whole update up to it.
type stepSums struct {
	momentum, second sums
	update           updateSums
}

// updateSums are sums of squares of updates: of the difference, and of the
// source's.
type updateSums struct{ err2, want2 float64 }

func (u updateSums) relative() float64 { return relative(u.err2, u.want2) }

// noiseSums say how much one quantization of the source's next momentum loses.
type noiseSums struct{ err2, want2 float64 }

func (n noiseSums) relative() float64 { return relative(n.err2, n.want2) }

func (n *noiseSums) merge(o noiseSums) {
	n.err2 += o.err2
	n.want2 += o.want2
}

func mergeSteps(to, from []stepSums) []stepSums {
	for len(to) < len(from) {
		to = append(to, stepSums{})
	}
	for i, f := range from {
		to[i].momentum.merge(f.momentum)
		to[i].second.merge(f.second)
		to[i].update.err2 += f.update.err2
		to[i].update.want2 += f.update.want2
	}
	return to
}

// segmentElements is about how many elements are carried on at a time. A segment
// begins and ends where blocks do in both checkpoints, so a long block makes it
// longer.
const segmentElements = 1 << 17

// carryOn steps parameter p of both checkpoints with the same gradients.
func (v *pair) carryOn(ctx context.Context, p int) (continuation, error) {
	var out continuation
	if v.srcQ == nil {
		v.srcQ, v.dstQ = newQuantizers(v.src), newQuantizers(v.dst)
	}
	if v.o.Steps == 0 || len(v.src.Ranks) == 0 || len(v.dst.Ranks) == 0 {
		return out, nil
	}
	a, err := strandOf(v.src, v.srcQ, p)
	if a == nil || err != nil {
		return out, err
	}
	b, err := strandOf(v.dst, v.dstQ, v.to[p])
	if b == nil || err != nil {
		return out, err
	}
	out.steps = make([]stepSums, v.o.Steps)
	c := &carrier{options: v.options(p), dtype: gefen.Float32, out: &out, rng: rand.New(rand.NewPCG(v.o.Seed, uint64(p)))}
	if v.src.Params[p].DType == "torch.bfloat16" {
		c.dtype = gefen.BFloat16
	}
	for from := int64(0); from < a.n; {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		to := common(a, b, min(from+segmentElements, a.n))
		x, err := a.read(from, to)
		if err != nil {
			return out, err
		}
		y, err := b.read(from, to)
		if err != nil {
			return out, err
		}
		c.segment(x, y, int(to-from), from)
		from = to
	}
	return out, nil
}

func (v *pair) options(p int) gefen.Options {
	g := &v.src.Groups[v.src.Params[p].Group]
	return gefen.Options{LR: g.LR, Beta1: g.Beta1, Beta2: g.Beta2, Eps: g.Eps, WeightDecay: g.WeightDecay}
}

// carrier carries segments of one parameter on.
type carrier struct {
	options gefen.Options
	dtype   gefen.DType
	rng     *rand.Rand
	out     *continuation
}

// segment steps n elements, the first of which is number from.
func (c *carrier) segment(src, dst []piece, n int, from int64) {
	planes := make([][]float32, 9)
	for i := range planes {
		planes[i] = make([]float32, n)
	}
	m0, v0, g, mx, vx, my, vy, ux, uy := planes[0], planes[1], planes[2], planes[3], planes[4], planes[5], planes[6], planes[7], planes[8]
	u := make([]float32, n)
	expand(src, m0, v0)
	for k := range c.out.steps {
		c.gradient(g, src, m0, v0)
		c.step(src, g, u, ux, k)
		c.step(dst, g, u, uy, k)
		expand(src, mx, vx)
		expand(dst, my, vy)
		if k == 0 {
			c.noise(m0, g, mx)
		}
		s := &c.out.steps[k]
		s.momentum.add(my, mx, from)
		s.second.add(vy, vx, from)
		for i, want := range ux {
			d := float64(uy[i]) - float64(want)
			s.update.err2 += d * d
			s.update.want2 += float64(want) * float64(want)
		}
	}
}

// gradient draws gradients that fit the state: around the momentum, and with the
// second moment's spread.
func (c *carrier) gradient(g []float32, src []piece, m, v []float32) {
	for _, p := range src {
		bc1 := 1 - math.Pow(c.options.Beta1, float64(p.shard.state.Step))
		bc2 := 1 - math.Pow(c.options.Beta2, float64(second(p.shard.state)))
		for i := p.at; i < p.at+p.n; i++ {
			mean := float64(m[i]) / bc1
			spread := math.Sqrt(max(float64(v[i])/bc2-mean*mean, 0))
			g[i] = float32(mean + spread*c.rng.NormFloat64())
			if c.dtype == gefen.BFloat16 {
				g[i] = gefen.RoundBFloat16(g[i])
			}
		}
	}
}

// second is the age of the second moment.
func second(s *checkpoint.State) int64 {
	if s.VmeanStep == checkpoint.Absent {
		return s.Step
	}
	return s.VmeanStep
}

// step takes step number k (from 0) and adds the update to total.
func (c *carrier) step(pieces []piece, g, u, total []float32, k int) {
	for _, p := range pieces {
		s := gefen.Arithmetic{}.NewStep(c.options, c.dtype, p.shard.book, p.shard.q, p.shard.state.Step+int64(k)+1, second(p.shard.state)+int64(k)+1)
		s.Blocks(nil, u[p.at:p.at+p.n], g[p.at:p.at+p.n], p.blocks)
		for i := p.at; i < p.at+p.n; i++ {
			total[i] += u[i]
		}
	}
}

// noise compares the source's requantized momentum with what was quantized.
func (c *carrier) noise(m, g, quantized []float32) {
	w := 1 - c.options.Beta1
	for i, q := range quantized {
		want := float64(m[i]) + w*(float64(g[i])-float64(m[i]))
		d := float64(q) - want
		c.out.noise.err2 += d * d
		c.out.noise.want2 += want * want
	}
}
