// Package reshard plans how the state of N ranks becomes the state of M, and
// makes it. It does no I/O of its own: topology and statistics in, operations out.
//
// Under FSDP2 every rank has its own codebook, and its own block length (period)
// per parameter. A plan says, for each target rank, which codebook it gets and
// how a source rank's indices are renamed to it, and for each of its shards the
// period, where the elements come from, and what that costs in bytes and error.
//
// # How an executor uses it
//
// It describes the source as a [Topology], wraps the state as a [Source], and
// calls [New]. [Plan.Ranks] then has one [Rank] per target rank, and each has one
// [Shard] per parameter, parallel to Topology.Params. Nothing else is needed to
// write the containers: codebook, local rows, step, vmean step and the sizes of
// the three planes (Elements indices, Blocks magnitudes, Blocks second moments).
//
// To write a shard's planes it asks [Plan.Open] for [Planes] and calls
// [Planes.Indices], [Planes.Magnitudes] and [Planes.Vmeans] for consecutive
// ranges. The three do not depend on each other and may be written anywhere, at
// any time, by different goroutines that each have Planes of their own. Called
// for ascending ranges, they read the source in ascending order, in bounded
// memory, whatever the block length: a block longer than a buffer is read once
// more to learn its magnitude before its first index is made. Only the reference
// fidelity holds whole blocks, and while it plans one shard's second moments. A
// piece for which [Rank.Verbatim] holds has its index bytes unchanged, so a file
// range may be copied instead.
//
// # Words
//
// Elements are numbered row-major. A position is an element of the whole
// parameter; an offset is an element of one shard. A segment is the intersection
// of one target block and one source block.
package reshard
