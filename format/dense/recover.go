package dense

import (
	"context"
	"math"
	"slices"
	"sort"
	"sync"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/tensor"
	"gefenckpt/gefen"
	"gefenckpt/internal/fault"

	"golang.org/x/sync/errgroup"
)

// Found says how much of a dense state had the structure of a compact one.
type Found struct {
	Elements, Explained int64 // with state, and of these in blocks of a codebook
	// Unexplained are the parameters that have other elements too.
	Unexplained []string
	// Short is how many shards had their blocks cut, or joined, against what the
	// second moment shows.
	Short int
}

// Recover finds the compact state that GefenDCPState expanded into c, a dense
// directory that does not remember it ([Restore] is for those that do). The ranks
// are those that wrote the chunks, with the rows of torch.chunk.
//
// The second moment is constant over blocks, so the block length is the largest
// that divides every place where it changes. A step of Gefen divides a block by
// its largest |m|, which therefore has the codeword -1 or +1: the magnitude is the
// largest |m|. Every other momentum then allows a few neighbouring float32 values
// for its codeword, and the fewest codewords that have one for each momentum of a
// rank are at most 256. Moments are then the dense ones, bit for bit; codewords
// that no element uses are new ones.
//
// Blocks that were cut, by gefenckpt or by other chunks than those of their ranks,
// and not stepped since need not have their magnitude among their elements. It is
// then the one with which every element has a codeword of the others.
//
// A shard without that structure gets blocks of one element: as magnitude |m| and
// the codeword -1 or +1, which is exact too. Found tells how many have.
func Recover(ctx context.Context, c *checkpoint.Checkpoint, jobs int) (*checkpoint.Checkpoint, *Found, error) {
	out := *c
	out.Form, out.Slots, out.World = checkpoint.Compact, nil, writers(c)
	out.Ranks = make([]checkpoint.Rank, out.World)
	found := make([]Found, out.World)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(jobs, 1))
	for r := range out.Ranks {
		group.Go(func() error {
			x := recovery{ctx: ctx, c: c, world: out.World, rank: r}
			if err := x.run(); err != nil {
				return fault.Within(err, c.Path, "")
			}
			out.Ranks[r] = x.result()
			found[r] = x.found()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	return &out, total(found), nil
}

func total(found []Found) *Found {
	t := &Found{}
	for _, f := range found {
		t.Elements += f.Elements
		t.Explained += f.Explained
		t.Short += f.Short
		t.Unexplained = append(t.Unexplained, f.Unexplained...)
	}
	slices.Sort(t.Unexplained)
	t.Unexplained = slices.Compact(t.Unexplained)
	return t
}

// writers is the number of ranks whose chunks the slots are; 1 where the chunks
// are not those of torch.chunk.
func writers(c *checkpoint.Checkpoint) int {
	world := max(c.World, 1)
	for p, slot := range c.Slots {
		if slot.Momentum == nil || len(c.Params[p].Shape) == 0 {
			continue
		}
		for _, chunk := range slot.Momentum.Chunks {
			rows := c.Params[p].Rows()
			row, n := checkpoint.ChunkRows(rows, world, 0)
			if n > 0 {
				row, n = checkpoint.ChunkRows(rows, world, int(min(chunk.Offset[0]/n, int64(world)-1)))
			}
			if chunk.Shape[0] > 0 && (row != chunk.Offset[0] || n != chunk.Shape[0]) {
				return 1
			}
		}
	}
	return world
}

// recovery is of one rank.
type recovery struct {
	ctx         context.Context
	c           *checkpoint.Checkpoint
	world, rank int
	shards      []rows // by parameter
	book        *gefen.Codebook
}

// rows are one rank's part of a slot.
type rows struct {
	p         int
	local     []int64
	row       int64
	moments   *checkpoint.Slot // nil without state
	from, n   int64            // elements of the slot
	period    int64            // by the second moment
	spans     []counted
	explained bool // blocks of period have codewords of the rank's book
	short     bool
	known     []float32 // magnitudes of long blocks
}

func (x *recovery) run() error {
	for p := range x.c.Params {
		s := rows{p: p}
		param, slot := &x.c.Params[p], &x.c.Slots[p]
		if len(param.Shape) == 0 {
			return fault.New(fault.Corrupt, "a parameter without dimensions is not sharded").In(param.Name)
		}
		s.local, s.row = checkpoint.ChunkShape(param.Shape, x.world, x.rank)
		s.n, _ = tensor.Volume(s.local)
		if s.n > math.MaxInt {
			return fault.New(fault.Resource, "a shard of %d elements is more than this machine can count", s.n).In(param.Name)
		}
		if slot.Initialized && s.n > 0 && slot.Momentum != nil && slot.SecondMoment != nil {
			width, _ := tensor.Volume(param.Shape[1:])
			s.moments, s.from = slot, s.row*width
			if err := x.examine(&s); err != nil {
				return fault.Within(err, "", param.Name)
			}
		}
		x.shards = append(x.shards, s)
	}
	x.learn()
	for i := range x.shards {
		s := &x.shards[i]
		if s.moments == nil {
			continue
		}
		if err := x.settle(s); err != nil {
			return fault.Within(err, "", x.c.Params[s.p].Name)
		}
	}
	return nil
}

// examine finds the block length of a shard, and the spans of its codewords.
func (x *recovery) examine(s *rows) error {
	var err error
	if s.period, err = x.period(s); err != nil {
		return err
	}
	var found census
	fine := true
	err = x.blocks(s, s.period, func(_ int64, magnitude float32, part []float32) (bool, error) {
		for _, m := range part {
			one, ok := spanOf(m, magnitude)
			if fine = ok && found.add(one); !fine {
				return false, nil
			}
		}
		return true, nil
	})
	if err == nil && fine {
		if spans, ok := found.result(); ok {
			s.spans, s.explained = spans, true
		}
	}
	return err
}

// period is the largest block length over which the second moment is constant. A
// shard whose second moment is all zeros shows nothing, and gets that of a shard
// without structure.
func (x *recovery) period(s *rows) (int64, error) {
	period, before := s.n, uint32(0)
	var plane floats
	for at := int64(0); at < s.n; at += scanElements {
		if err := x.ctx.Err(); err != nil {
			return 0, err
		}
		values, err := plane.read(s.moments.SecondMoment, s.from+at, min(scanElements, s.n-at))
		if err != nil {
			return 0, err
		}
		for i, v := range values {
			bits := math.Float32bits(v)
			if bits == before && at+int64(i) > 0 {
				continue
			}
			if !(v >= 0 && v <= math.MaxFloat32) {
				return 0, fault.New(fault.Corrupt, "element %d of the second moment is %v, expected a finite number from 0 on", s.from+at+int64(i), v)
			}
			period, before = gcd(period, at+int64(i)), bits
		}
	}
	if period < s.n || before != 0 {
		return period, nil
	}
	param := &x.c.Params[s.p]
	plain, err := gefen.FindPeriodOfRuns([]float32{0}, []int{int(s.n)}, param.Name, param.Shape, gefen.PeriodRule{})
	return int64(plain), err
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// blocks reads the momentum of a shard in blocks of period elements, without those
// of zeros, and calls use for the parts of each with its largest |m|; use says
// whether to go on.
func (x *recovery) blocks(s *rows, period int64, use func(block int64, magnitude float32, part []float32) (bool, error)) error {
	var plane floats
	read := func(from, n int64) ([]float32, error) {
		if err := x.ctx.Err(); err != nil {
			return nil, err
		}
		return plane.read(s.moments.Momentum, s.from+from, n)
	}
	whole := max(scanElements/period, 1) * period // elements of whole blocks
	for at := int64(0); at < s.n; at += whole {
		end := min(at+whole, s.n)
		step := min(end-at, scanElements)
		largest := float32(0)
		if period > scanElements {
			for from := at; from < end; from += step {
				values, err := read(from, min(step, end-from))
				if err != nil {
					return err
				}
				largest = max(largest, gefen.AbsMax(values))
			}
		}
		for from := at; from < end; from += step {
			values, err := read(from, min(step, end-from))
			if err != nil {
				return err
			}
			for i := int64(0); i < int64(len(values)); i += period {
				part := values[i:min(i+period, int64(len(values)))]
				magnitude := largest
				if period <= scanElements {
					magnitude = gefen.AbsMax(part)
				}
				if !(magnitude <= math.MaxFloat32) {
					return fault.New(fault.Corrupt, "the momentum has a value of magnitude %v between elements %d and %d, expected finite numbers", magnitude, s.from+at, s.from+end)
				}
				if magnitude == 0 {
					continue
				}
				if on, err := use((from+i)/period, magnitude, part); !on || err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// learn makes the rank's codebook of the shards that have one in common, the most
// telling first: those that have many elements for each codeword.
func (x *recovery) learn() {
	var order []*rows
	for i := range x.shards {
		if s := &x.shards[i]; s.explained {
			order = append(order, s)
		}
	}
	telling := func(s *rows) float64 { return float64(s.n) / float64(len(codewords(s.spans))) }
	sort.SliceStable(order, func(i, j int) bool { return telling(order[i]) > telling(order[j]) })
	var all []counted
	for _, s := range order {
		both := innermost(slices.Concat(all, s.spans))
		if s.explained = fits(both); s.explained {
			all = both
		}
		s.spans = nil
	}
	x.book = codebookOf(codewords(all))
}

// mostTries is how many block lengths are tried of a shard that its second
// moment's does not explain.
const mostTries = 24

// settle finds blocks for a shard that the second moment's do not explain, and
// notes the magnitudes of long ones.
func (x *recovery) settle(s *rows) error {
	f := newFinder(x.book)
	if !s.explained {
		lengths := gefen.Divisors(int(s.period))
		slices.Reverse(lengths)
		if lengths = slices.DeleteFunc(lengths, func(p int) bool { return p > scanElements }); len(lengths) > mostTries {
			lengths = lengths[:mostTries]
		}
		for _, p := range lengths {
			if p == 1 {
				break
			}
			fine := true
			err := x.blocks(s, int64(p), func(_ int64, largest float32, part []float32) (bool, error) {
				_, fine = f.scale(part, largest)
				return fine, nil
			})
			if err != nil {
				return err
			}
			if fine {
				s.period, s.explained, s.short = int64(p), true, true
				break
			}
		}
		if !s.explained {
			s.period = 1
		}
	}
	if s.period < longBlock {
		return nil
	}
	s.known = make([]float32, s.n/s.period)
	return x.blocks(s, s.period, func(block int64, largest float32, part []float32) (bool, error) {
		s.known[block] = largest
		if s.short {
			s.known[block], _ = f.scale(part, largest)
		}
		return true, nil
	})
}

func (x *recovery) found() Found {
	var f Found
	for i := range x.shards {
		s := &x.shards[i]
		switch {
		case s.moments == nil:
			continue
		case s.explained:
			f.Explained += s.n
		default:
			f.Unexplained = append(f.Unexplained, x.c.Params[s.p].Name)
		}
		if s.short {
			f.Short++
		}
		f.Elements += s.n
	}
	return f
}

// result is the rank as it was.
func (x *recovery) result() checkpoint.Rank {
	rank := checkpoint.Rank{GlobalRank: x.rank, Coordinate: x.rank}
	f := sync.OnceValues(func() (*finder, error) { return newFinder(x.book), nil })
	for i := range x.shards {
		s := &x.shards[i]
		shard := checkpoint.Shard{LocalShape: s.local, Row: s.row}
		if s.moments != nil {
			shard.State = s.state(f)
			if rank.Codebook == nil {
				rank.Codebook = tensor.FromFloat32s([]int64{checkpoint.Codewords}, x.book[:])
			}
		}
		rank.Shards = append(rank.Shards, shard)
	}
	return rank
}

func (s *rows) state(f func() (*finder, error)) *checkpoint.State {
	blocks := s.n / s.period
	out := &checkpoint.State{Period: s.period, Step: s.moments.Step, VmeanStep: s.moments.VmeanStep, FactoredStep: checkpoint.Absent, NormuonStep: checkpoint.Absent,
		Vmean: stored(tensor.Float32, &sampled{s.moments.SecondMoment, s.from, s.period, blocks}, blocks, 1)}
	if s.known != nil {
		out.Magnitude = tensor.FromFloat32s([]int64{blocks, 1}, s.known)
	} else {
		out.Magnitude = stored(tensor.Float32, &peaks{f, s.moments.Momentum, s.from, s.period, blocks, s.short}, blocks, 1)
	}
	out.Index = stored(tensor.Uint8, &found{f, s.moments.Momentum, out.Magnitude, s.from, s.period, s.n}, blocks, s.period)
	return out
}
