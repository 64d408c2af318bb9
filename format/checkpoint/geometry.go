package checkpoint

import "slices"

// ChunkRows are the rows that a rank of world has of a parameter sharded by
// Shard(0): torch.chunk's rule. Every rank has ceil(rows/world) but the last
// ones, which may have none; their row is then rows.
func ChunkRows(rows int64, world, rank int) (row, n int64) {
	size := (rows + int64(world) - 1) / int64(world)
	if size > 0 && int64(rank) > rows/size {
		return rows, 0
	}
	row = min(int64(rank)*size, rows)
	return row, min(row+size, rows) - row
}

// ChunkShape is the local shape that goes with ChunkRows.
func ChunkShape(shape []int64, world, rank int) (local []int64, row int64) {
	local = slices.Clone(shape)
	row, local[0] = ChunkRows(shape[0], world, rank)
	return local, row
}

// Box is the part of the parameter that a shard's state describes: where it
// begins, and its shape, both per dimension. It is the whole parameter for plain
// and replicated tensors, and in GefenMuon's exact and distributed modes.
func (p *Param) Box(s *Shard) (offset, shape []int64) {
	offset = make([]int64, len(p.Shape))
	if p.Placement.Type != "Shard" || p.Whole() {
		return offset, p.Shape
	}
	offset[p.Placement.Dim] = s.Row
	return offset, s.LocalShape
}
