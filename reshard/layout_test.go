package reshard

import (
	"math/rand/v2"
	"testing"
)

// TestLayoutAgainstElementMap plans random topologies, any tiling of rows, and
// compares pieces, exact periods and operations with a map of single elements.
func TestLayoutAgainstElementMap(t *testing.T) {
	rng := newRand(1)
	for range 12_000 {
		k := &maker{rng: rng, world: 1 + rng.IntN(5), params: 1 + rng.IntN(2), rows: 24, width: 12, codewords: 256,
			chunked: rng.IntN(2) == 0}
		m := k.source()
		if err := m.topology.validate(); err != nil {
			t.Fatal(err)
		}
		world := 1 + rng.IntN(6)
		ranks, _ := m.topology.layout(world)
		for i := range m.topology.Params {
			checkLayout(t, &m.topology.Params[i], ranks, i, rng)
		}
	}
}

// place is where one element lies in the source.
type place struct {
	rank         int
	offset       int64
	block        int64
	blockFrom    int64 // target offset at which its block begins
	period       int64
	blockInShard bool // the whole block lies in the target shard
}

func checkLayout(t *testing.T, p *Param, ranks []Rank, i int, rng *rand.Rand) {
	t.Helper()
	width := p.RowElements()
	seen := make([]int, p.Rows()*width)
	for r := range ranks {
		s := &ranks[r].Shards[i]
		if s.Elements != s.Rows*width {
			t.Fatalf("%d elements in %d rows of %d", s.Elements, s.Rows, width)
		}
		var places []place
		for j := range s.Pieces {
			pc := &s.Pieces[j]
			if pc.At != int64(len(places)) {
				t.Fatalf("piece %d begins at %d, want %d", j, pc.At, len(places))
			}
			for e := range pc.Elements {
				o := pc.From + e
				pl := place{rank: pc.Source, offset: o, period: pc.Period}
				if pc.Period > 0 {
					pl.block = o / pc.Period
					pl.blockFrom = pc.At + pl.block*pc.Period - pc.From
					pl.blockInShard = pl.blockFrom >= pc.At && pl.blockFrom+pc.Period <= pc.end()
				}
				places = append(places, pl)
				position := p.Shards[pc.Source].Row*width + o
				if want := s.Row*width + pc.At + e; position != want {
					t.Fatalf("element %d comes from position %d", want, position)
				}
				seen[position]++
			}
		}
		if len(s.Pieces) > 0 {
			checkPeriods(t, p, &ranks[r], s, places, rng)
		}
	}
	if !p.Sharded {
		return
	}
	for r := range p.Shards {
		from := p.Shards[r].Row * width
		for position, n := range seen[from : from+p.elements(r)] {
			// Zeros are carried only beside elements with state.
			if n > 1 || n == 0 && p.Shards[r].Period > 0 {
				t.Fatalf("element %d of rank %d is in the target %d times", position, r, n)
			}
		}
	}
}

func checkPeriods(t *testing.T, p *Param, r *Rank, s *Shard, places []place, rng *rand.Rand) {
	t.Helper()
	oneSource := func(q int64) bool {
		for at := range places {
			first := places[int64(at)/q*q]
			if places[at].rank != first.rank || places[at].block != first.block {
				return false
			}
		}
		return true
	}
	largest := int64(0)
	for _, q := range divisors(s.Elements) {
		if oneSource(q) {
			largest = q
		}
	}
	if got := exactPeriod(s.Pieces, s.Elements); got != largest {
		t.Fatalf("exact period is %d, want %d, for %+v", got, largest, s.Pieces)
	}
	all := divisors(s.Elements)
	q := all[rng.IntN(len(all))]
	if rng.IntN(2) == 0 {
		q = largest
	}
	renamed := rng.IntN(len(r.Remap))
	r.Remap[renamed] = new([256]uint8)
	defer func() { r.Remap[renamed] = nil }()
	s.settle(r, p, q, None)
	if want := s.Elements + 8*(s.Elements/q); s.BytesAfter != want {
		t.Fatalf("%d bytes, want %d", s.BytesAfter, want)
	}
	worst := None
	for j := range s.Pieces {
		pc := &s.Pieces[j]
		want := wantOperation(places, pc, q, renamed)
		if pc.Operation != want {
			t.Fatalf("piece %+v at period %d: %v, want %v", *pc, q, pc.Operation, want)
		}
		worst = max(worst, want)
	}
	if s.Operation != worst {
		t.Fatalf("shard: %v, want %v", s.Operation, worst)
	}
}

func wantOperation(places []place, pc *Piece, q int64, renamed int) Operation {
	keep := true
	for at := pc.At; at < pc.end(); at++ {
		for other := at / q * q; other < at/q*q+q; other++ {
			if places[other].rank != pc.Source || places[other].block != places[at].block {
				return Coarsen
			}
		}
		keep = keep && places[at].blockInShard && places[at].period == q
	}
	switch {
	case pc.Period == 0:
		return Keep
	case pc.Source == renamed:
		return Requantize
	case keep:
		return Keep
	}
	return Split
}

func TestChunkIsTorchChunk(t *testing.T) {
	for _, c := range []struct {
		rows  int64
		world int
		want  [][2]int64
	}{
		{10, 4, [][2]int64{{0, 3}, {3, 6}, {6, 9}, {9, 10}}},
		{1, 3, [][2]int64{{0, 1}, {1, 1}, {1, 1}}},
		{5, 4, [][2]int64{{0, 2}, {2, 4}, {4, 5}, {5, 5}}},
		{0, 2, [][2]int64{{0, 0}, {0, 0}}},
		{1<<62 + 1, 2, [][2]int64{{0, 1<<61 + 1}, {1<<61 + 1, 1<<62 + 1}}},
	} {
		for r, want := range c.want {
			if from, to := Chunk(c.rows, c.world, r); from != want[0] || to != want[1] {
				t.Errorf("rank %d of %d has rows %d to %d of %d, want %d to %d", r, c.world, from, to, c.rows, want[0], want[1])
			}
		}
	}
}
