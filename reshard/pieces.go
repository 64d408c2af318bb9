package reshard

import (
	"cmp"
	"slices"
)

// pieces says where the elements of rows [row, row+rows) of p come from, in
// order.
func (p *Param) pieces(row, rows int64) []Piece {
	width := p.RowElements()
	var out []Piece
	for rank, s := range p.Shards {
		from, to := max(s.Row, row), min(s.Row+s.Rows, row+rows)
		if from >= to || width == 0 {
			continue
		}
		out = append(out, Piece{
			Source:   rank,
			From:     (from - s.Row) * width,
			At:       (from - row) * width,
			Elements: (to - from) * width,
			Period:   s.Period,
		})
	}
	slices.SortStableFunc(out, func(a, b Piece) int { return cmp.Compare(a.At, b.At) })
	return out
}

// end is the offset after the piece's last element.
func (pc *Piece) end() int64 { return pc.At + pc.Elements }

// blocks gives the blocks of the source that the piece touches, [first, last].
func (pc *Piece) blocks() (first, last int64) {
	return pc.From / pc.Period, (pc.From + pc.Elements - 1) / pc.Period
}

// cut is the offset in the target at which source block b begins.
func (pc *Piece) cut(b int64) int64 { return pc.At + b*pc.Period - pc.From }

// whole says that the piece has no part of a block.
func (pc *Piece) whole() bool {
	return pc.From%pc.Period == 0 && pc.Elements%pc.Period == 0
}

// exactPeriod is the largest period by which every block of a target shard of n
// elements lies in one source block. Every divisor of it does as well, and no
// other period does: each cut between two source blocks must fall between two
// target blocks, so the period divides n and the offset of each cut.
func exactPeriod(pieces []Piece, n int64) int64 {
	g := n
	for i := range pieces {
		pc := &pieces[i]
		g = gcd(g, pc.At)
		if pc.Period == 0 {
			continue
		}
		first, last := pc.blocks()
		if last > first {
			g = gcd(g, pc.cut(first+1))
		}
		if last > first+1 {
			g = gcd(g, pc.Period)
		}
	}
	return g
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// divisors of n, ascending.
func divisors(n int64) []int64 {
	var low, high []int64
	for d := int64(1); d <= n/d; d++ {
		if n%d != 0 {
			continue
		}
		low = append(low, d)
		if d != n/d {
			high = append(high, n/d)
		}
	}
	slices.Reverse(high)
	return append(low, high...)
}
