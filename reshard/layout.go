package reshard

import (
	"slices"

	"gefenckpt/internal/fault"
)

// layout cuts every parameter into the shards of world target ranks: rows,
// pieces and counters, no periods yet. Where ranks contradict each other in
// whether they have state, or in its counters, it says what is carried.
func (t *Topology) layout(world int) (ranks []Rank, warnings []*fault.Error) {
	ranks = make([]Rank, world)
	for r := range ranks {
		ranks[r].Remap = make([]*[256]uint8, t.World)
		ranks[r].Shards = make([]Shard, len(t.Params))
	}
	for i := range t.Params {
		p := &t.Params[i]
		for r := range ranks {
			ranks[r].Shards[i] = p.shard(world, r)
		}
		for _, w := range p.contradictions() {
			warnings = append(warnings, w.In(p.Name))
		}
	}
	return ranks, warnings
}

// shard is target rank r's part of the parameter.
func (p *Param) shard(world, r int) Shard {
	s := Shard{Rows: p.Rows(), VmeanStep: Absent}
	var pieces []Piece
	if p.Sharded {
		from, to := Chunk(p.Rows(), world, r)
		s.Row, s.Rows = from, to-from
		pieces = p.pieces(s.Row, s.Rows)
	} else if source := p.replica(world, r); source >= 0 {
		pieces = []Piece{{Source: source, Elements: p.elements(source), Period: p.Shards[source].Period}}
	}
	s.Elements = s.Rows * p.RowElements()
	if !slices.ContainsFunc(pieces, func(pc Piece) bool { return pc.Period > 0 }) {
		return s
	}
	s.Pieces = pieces
	share := float64(0)
	for i := range pieces {
		source := &p.Shards[pieces[i].Source]
		if source.Period == 0 {
			continue
		}
		s.Step, s.VmeanStep = max(s.Step, source.Step), max(s.VmeanStep, source.VmeanStep)
		s.BytesBefore += pieces[i].Elements
		share += float64(p.blockBytes()) * float64(pieces[i].Elements) / float64(source.Period)
	}
	s.BytesBefore += int64(share + 0.5)
	return s
}

// replica is the source rank whose copy target rank r takes: the one in the same
// place among N ranks as r among M, so rank 0 takes rank 0's and ranks that are
// cut and joined again get back what they had. It is the next rank with state
// where that one has none, and -1 where none has.
func (p *Param) replica(world, r int) int {
	n := len(p.Shards)
	first := int(int64(r) * int64(n) / int64(world))
	for i := range n {
		if source := (first + i) % n; p.Shards[source].Period > 0 {
			return source
		}
	}
	return -1
}

// contradictions are what the ranks with elements of the parameter disagree in.
func (p *Param) contradictions() []*fault.Error {
	with, without, other, vmean := -1, -1, -1, -1
	for r := range p.Shards {
		s := &p.Shards[r]
		switch {
		case p.elements(r) == 0:
		case s.Period == 0:
			without = r
		case with < 0:
			with = r
		case s.Step != p.Shards[with].Step:
			other = r
		case s.VmeanStep != p.Shards[with].VmeanStep:
			vmean = r
		}
	}
	var found []*fault.Error
	if with >= 0 && without >= 0 {
		found = append(found, fault.New(fault.Corrupt, "rank %d has state and rank %d has none", with, without).
			WithHint("its rows continue from zeros"))
	}
	if other >= 0 {
		found = append(found, fault.New(fault.Corrupt, "step is %d on rank %d and %d on rank %d",
			p.Shards[with].Step, with, p.Shards[other].Step, other).
			WithHint("shards that take from both continue from the higher one"))
	}
	if vmean >= 0 {
		found = append(found, fault.New(fault.Corrupt, "vmean_step is %d on rank %d and %d on rank %d",
			p.Shards[with].VmeanStep, with, p.Shards[vmean].VmeanStep, vmean).
			WithHint("shards that take from both continue from the higher one"))
	}
	return found
}

// settle gives a shard its period, and says what that does to its pieces.
func (s *Shard) settle(r *Rank, p *Param, period int64, as Operation) {
	s.Period = period
	s.BytesAfter = s.Elements + p.blockBytes()*s.Blocks()
	s.Operation = None
	for i := range s.Pieces {
		pc := &s.Pieces[i]
		pc.Operation = as
		if as == None {
			pc.Operation = s.operation(r, pc)
		}
		s.Operation = max(s.Operation, pc.Operation)
	}
}

// operation is what an inexact or exact period does to a piece's blocks.
func (s *Shard) operation(r *Rank, pc *Piece) Operation {
	q := s.Period
	first, last := pc.At/q*q, (pc.end()+q-1)/q*q // whole target blocks that the piece touches
	switch {
	case first != pc.At || last != pc.end():
		return Coarsen
	case pc.Period == 0:
		return Keep
	case exactPeriod([]Piece{{From: pc.From, Elements: pc.Elements, Period: pc.Period}}, pc.Elements)%q != 0:
		return Coarsen
	case r.Remap[pc.Source] != nil:
		return Requantize
	case q == pc.Period && pc.whole():
		return Keep
	}
	return Split
}
