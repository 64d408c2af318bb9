package reshard

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gefenckpt/gefen"
)

// memory is a source that is held in memory.
type memory struct {
	topology Topology
	books    []*gefen.Codebook
	states   [][]state // by parameter and rank
}

// state is the state of one shard.
type state struct {
	period     int64
	index      []uint8
	magnitudes []float32
	vmeans     []float32
}

func (m *memory) Codebook(rank int) (*gefen.Codebook, error) { return m.books[rank], nil }

func (m *memory) Indices(dst []uint8, param, rank int, from int64) error {
	copy(dst, m.states[param][rank].index[from:from+int64(len(dst))])
	return nil
}

func (m *memory) Magnitudes(dst []float32, param, rank int, from int64) error {
	copy(dst, m.states[param][rank].magnitudes[from:from+int64(len(dst))])
	return nil
}

func (m *memory) Vmeans(dst []float32, param, rank int, from int64) error {
	copy(dst, m.states[param][rank].vmeans[from:from+int64(len(dst))])
	return nil
}

// moments are momentum and second moment of every element of a shard.
func (s *state) moments(book *gefen.Codebook) (m, v []float32) {
	for i, k := range s.index {
		b := int64(i) / s.period
		m, v = append(m, book[k]*s.magnitudes[b]), append(v, s.vmeans[b])
	}
	return m, v
}

// whole are the moments of a parameter, in the order of its rows.
func (m *memory) whole(param int) (momentum, second []float32) {
	p := &m.topology.Params[param]
	for _, pc := range p.pieces(0, p.Rows()) {
		if !p.Sharded && pc.Source > 0 {
			continue
		}
		a, b := m.shard(param, pc.Source)
		momentum, second = append(momentum, a...), append(second, b...)
	}
	return momentum, second
}

func (m *memory) shard(param, rank int) (momentum, second []float32) {
	s := &m.states[param][rank]
	if s.period == 0 {
		n := m.topology.Params[param].elements(rank)
		return make([]float32, n), make([]float32, n)
	}
	return s.moments(m.books[rank])
}

// made makes the whole target in memory, in chunks of random lengths if rng is
// not nil.
func made(t testing.TB, plan *Plan, src Source, rng *rand.Rand) *memory {
	t.Helper()
	out := &memory{topology: Topology{World: len(plan.Ranks)}}
	for i := range plan.topology.Params {
		p := plan.topology.Params[i]
		p.Shards = nil
		out.topology.Params = append(out.topology.Params, p)
		out.states = append(out.states, make([]state, len(plan.Ranks)))
	}
	for r := range plan.Ranks {
		out.books = append(out.books, plan.Ranks[r].Codebook)
		for i := range plan.Ranks[r].Shards {
			s := &plan.Ranks[r].Shards[i]
			p := &out.topology.Params[i]
			p.Shards = append(p.Shards, SourceShard{Row: s.Row, Rows: s.Rows, Period: s.Period, Step: s.Step, VmeanStep: s.VmeanStep})
			if s.Period == 0 {
				continue
			}
			x, err := plan.Open(src, r, i)
			if err != nil {
				t.Fatal(err)
			}
			st := &out.states[i][r]
			st.period = s.Period
			st.index = chunked(t, rng, s.Elements, x.Indices)
			st.magnitudes = chunked(t, rng, s.Blocks(), x.Magnitudes)
			st.vmeans = make([]float32, s.Blocks())
			if p.Blockwise {
				st.vmeans = chunked(t, rng, s.Blocks(), x.Vmeans)
			}
		}
	}
	return out
}

func chunked[T any](t testing.TB, rng *rand.Rand, n int64, read func([]T, int64) error) []T {
	t.Helper()
	out := make([]T, n)
	for at := int64(0); at < n; {
		size := n - at
		if rng != nil {
			size = 1 + rng.Int64N(size)
		}
		if err := read(out[at:at+size], at); err != nil {
			t.Fatal(err)
		}
		at += size
	}
	return out
}

// maker makes random sources.
type maker struct {
	rng *rand.Rand

	world      int
	params     int
	rows       int64 // at most
	width      int64 // at most
	codewords  int   // distinct codewords in use per rank, at most 256
	oneBook    bool  // all ranks have the same codebook
	chunked    bool  // rows by the rule of torch.chunk, not any tiling
	everywhere bool  // every shard has state, and the same steps
}

func (k *maker) source() *memory {
	m := &memory{topology: Topology{World: k.world}}
	for range k.world {
		if k.oneBook && len(m.books) > 0 {
			m.books = append(m.books, m.books[0])
			continue
		}
		m.books = append(m.books, k.codebook())
	}
	for i := range k.params {
		p, states := k.param(m.books)
		p.Name = string(rune('a' + i%26))
		m.topology.Params = append(m.topology.Params, p)
		m.states = append(m.states, states)
	}
	return m
}

func (k *maker) codebook() *gefen.Codebook {
	var book gefen.Codebook
	for i := range book {
		x := k.rng.Float64()*2 - 1
		book[i] = float32(x * math.Abs(x))
	}
	for i := k.codewords; i < len(book); i++ {
		book[i] = book[k.codewords-1]
	}
	book[0], book[1] = -1, 1
	slices.Sort(book[:])
	return &book
}

func (k *maker) param(books []*gefen.Codebook) (Param, []state) {
	p := Param{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Sharded: k.everywhere || k.rng.IntN(6) > 0, Blockwise: true}
	p.Shape = []int64{1 + k.rng.Int64N(k.rows)}
	if k.rng.IntN(4) > 0 {
		p.Shape = append(p.Shape, 1+k.rng.Int64N(k.width))
	}
	cuts := k.cuts(p.Rows())
	var states []state
	for r := range k.world {
		s := SourceShard{Row: cuts[r], Rows: cuts[r+1] - cuts[r], Step: 4, VmeanStep: 4}
		if !p.Sharded {
			s.Row, s.Rows = 0, p.Rows()
		}
		n := s.Rows * p.RowElements()
		if n > 0 && (k.everywhere || k.rng.IntN(12) > 0) {
			d := divisors(n)
			s.Period = d[k.rng.IntN(len(d))]
			if !k.everywhere {
				s.Step += k.rng.Int64N(2)
			}
		}
		p.Shards = append(p.Shards, s)
		states = append(states, k.state(n, s.Period))
	}
	return p, states
}

// cuts are the rows at which the ranks' shards begin, and their end.
func (k *maker) cuts(rows int64) []int64 {
	out := []int64{0}
	for r := range k.world {
		_, to := Chunk(rows, k.world, r)
		if !k.chunked {
			to = k.rng.Int64N(rows + 1)
		}
		out = append(out, to)
	}
	out[k.world] = rows
	slices.Sort(out)
	return out
}

func (k *maker) state(n, period int64) state {
	s := state{period: period}
	if period == 0 {
		return s
	}
	zero := k.rng.IntN(3) == 0
	for range n / period {
		a, v := math.Exp(2*k.rng.NormFloat64()), math.Exp(2*k.rng.NormFloat64())
		if zero && k.rng.IntN(3) == 0 {
			a, v = 0, 0
		}
		s.magnitudes = append(s.magnitudes, float32(a*1e-3))
		s.vmeans = append(s.vmeans, float32(v*1e-6))
		for i := range period {
			code := k.rng.IntN(256)
			if i == 0 {
				code = 255 * k.rng.IntN(2)
			}
			s.index = append(s.index, uint8(code))
		}
	}
	return s
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
