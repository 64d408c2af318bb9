package reshard

import "gefenckpt/gefen"

// Source reads the state of the source. Offsets count within one rank's shard of
// one parameter: elements for indices, blocks for the other two. It is asked only
// for ranges within shards that have state, in chunks of bounded length and
// mostly in ascending order. It must be safe for concurrent use.
type Source interface {
	// Codebook is that of a source rank, nil for a rank without momentum.
	Codebook(rank int) (*gefen.Codebook, error)
	// Indices reads the codebook indices of elements [from, from+len(dst)).
	Indices(dst []uint8, param, rank int, from int64) error
	// Magnitudes reads those of blocks [from, from+len(dst)).
	Magnitudes(dst []float32, param, rank int, from int64) error
	// Vmeans reads the second moments of blocks [from, from+len(dst)).
	Vmeans(dst []float32, param, rank int, from int64) error
}
