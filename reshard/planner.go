package reshard

import (
	"gefenckpt/internal/fault"
)

// New makes a plan. It reads of the source what its decisions need: nothing where
// blocks are kept or cut under one codebook within the budget, else magnitudes,
// second moments and indices of the target ranks that it concerns, in a few
// ascending passes.
//
// Errors are those of the source, and faults: Usage for a world below 1, and
// Incomplete or Corrupt for shards that are no tiling of their parameter.
func New(t *Topology, src Source, o Options) (*Plan, error) {
	if o.World < 1 {
		return nil, fault.New(fault.Usage, "a world of %d ranks", o.World)
	}
	if err := t.validate(); err != nil {
		return nil, err
	}
	plan := begin(t, o)
	first, last := 0, o.World
	if o.Last > 0 {
		first, last = o.First, o.Last
	}
	for r := first; r < last; r++ {
		p := &rankPlanner{topology: t, src: src, rank: &plan.Ranks[r]}
		if err := p.plan(o); err != nil {
			return nil, err
		}
		plan.gaps[r] = p.gap
		plan.add(r)
	}
	return plan, plan.measureRest(src, first, last)
}

// begin lays out the ranks of a plan, with what they may take.
func begin(t *Topology, o Options) *Plan {
	plan := &Plan{Fidelity: o.Fidelity, topology: t, gaps: make([]int64, o.World)}
	plan.Ranks, plan.Warnings = t.layout(o.World)
	plan.BytesBefore, plan.ElementsBefore = t.size()
	if o.Fidelity == Balanced {
		for r := range plan.Ranks {
			t.budget(&plan.Ranks[r], o.MaxGrowth)
		}
	}
	return plan
}

// add counts a rank that is planned.
func (plan *Plan) add(r int) {
	rank := &plan.Ranks[r]
	for i := range rank.Shards {
		s := &rank.Shards[i]
		rank.Bytes += s.BytesAfter
		if s.Period > 0 {
			plan.ElementsAfter += s.Elements
		}
	}
	plan.BytesAfter += rank.Bytes
	plan.LowerBound += rank.Bytes - plan.gaps[r]
}

// rankPlanner plans one target rank.
type rankPlanner struct {
	topology *Topology
	src      Source
	rank     *Rank
	sources  []int
	uses     map[int][]usage // by shard; as many as memory allows
	kept     int             // pieces in uses
	gap      int64           // bytes that the lower bound is below the plan
}

func (p *rankPlanner) plan(o Options) error {
	p.sources = p.rank.sources()
	if len(p.sources) == 0 {
		return nil
	}
	if o.Fidelity == Reference {
		return p.reference(o.Periods)
	}
	kept, err := p.rank.keepCodebook(p.src, p.sources)
	if err != nil {
		return err
	}
	exact, err := p.exact(kept)
	if err != nil {
		return err
	}
	if kept {
		p.settle(exact)
		if o.Fidelity == Lossless || p.bytes() <= p.rank.Budget {
			return nil
		}
	}
	if o.Fidelity == Lossless {
		err = p.lossless(exact)
	} else {
		err = p.balanced(exact, kept)
	}
	if err != nil {
		return err
	}
	return p.measure()
}

// shards are the indices of the shards with state.
func (p *rankPlanner) shards() []int {
	var out []int
	for i := range p.rank.Shards {
		if len(p.rank.Shards[i].Pieces) > 0 {
			out = append(out, i)
		}
	}
	return out
}

// layout is the period of a shard, and what is done with its blocks; None leaves
// that to the period.
type layout struct {
	period int64
	as     Operation
}

// exact are the largest periods by which every block keeps its magnitude and
// second moment, by shard.
func (p *rankPlanner) exact(oneCodebook bool) ([]layout, error) {
	out := make([]layout, len(p.rank.Shards))
	for _, i := range p.shards() {
		s := &p.rank.Shards[i]
		out[i].period = exactPeriod(s.Pieces, s.Elements)
		if !oneCodebook || len(s.Pieces) < 2 {
			continue
		}
		param := &p.topology.Params[i]
		w := &window{source: p.src, param: i, name: param.Name, pieces: s.Pieces, blockwise: param.Blockwise}
		joined, err := joinedPeriod(w, s.Elements)
		if err != nil {
			return nil, err
		}
		if joined > out[i].period {
			out[i] = layout{joined, Join}
		}
	}
	return out, nil
}

// settle gives every shard with state its layout.
func (p *rankPlanner) settle(layouts []layout) {
	for _, i := range p.shards() {
		p.settleShard(i, layouts[i])
	}
}

func (p *rankPlanner) settleShard(i int, l layout) {
	p.rank.Shards[i].settle(p.rank, &p.topology.Params[i], l.period, l.as)
}

// bytes are those of the shards as they are settled.
func (p *rankPlanner) bytes() int64 {
	total := int64(0)
	for i := range p.rank.Shards {
		total += p.rank.Shards[i].BytesAfter
	}
	return total
}

// usageMemory is how many pieces' usages are kept, at 6 KiB each; those of
// further shards are read again when they are needed again.
const usageMemory = 1 << 12

// usages reads what the pieces of shard i use of their codebooks.
func (p *rankPlanner) usages(i int) ([]usage, error) {
	if use, ok := p.uses[i]; ok {
		return use, nil
	}
	x, err := p.open(i)
	if err != nil {
		return nil, err
	}
	use, err := x.usages()
	if err != nil {
		return nil, err
	}
	if p.kept+len(use) <= usageMemory {
		if p.uses == nil {
			p.uses = map[int][]usage{}
		}
		p.uses[i] = use
		p.kept += len(use)
	}
	return use, nil
}

func (p *rankPlanner) open(i int) (*Planes, error) {
	return open(p.topology, p.src, p.rank, i)
}

// words is the set of codewords in use by shard i, in blocks that are not zeros.
func (p *rankPlanner) words(d *dictionary, i int) (set, error) {
	use, err := p.usages(i)
	if err != nil {
		return nil, err
	}
	x, err := p.open(i)
	if err != nil {
		return nil, err
	}
	return d.of(x.pieces, use), nil
}
