package reshard

import (
	"math"
	"math/bits"
	"slices"

	"gefenckpt/gefen"
	"gefenckpt/internal/fault"
)

// codebook reads that of a source rank with momentum.
func codebook(src Source, rank int) (*gefen.Codebook, error) {
	book, err := src.Codebook(rank)
	if err != nil {
		return nil, err
	}
	if book == nil {
		return nil, fault.New(fault.Corrupt, "rank %d has momentum but no codebook", rank)
	}
	if err := book.Validate(); err != nil {
		return nil, fault.New(fault.Corrupt, "rank %d: %w", rank, err)
	}
	return book, nil
}

// sources are the source ranks with state that a target rank takes from,
// ascending.
func (r *Rank) sources() []int {
	var out []int
	for i := range r.Shards {
		for _, pc := range r.Shards[i].Pieces {
			if pc.Period > 0 && !slices.Contains(out, pc.Source) {
				out = append(out, pc.Source)
			}
		}
	}
	slices.Sort(out)
	return out
}

// keepCodebook gives the rank its sources' codebook if they have the same one,
// and says whether they have.
func (r *Rank) keepCodebook(src Source, sources []int) (bool, error) {
	var first *gefen.Codebook
	for _, s := range sources {
		book, err := codebook(src, s)
		if err != nil {
			return false, err
		}
		if first == nil {
			first = book
		}
		if !identical(book, first) {
			return false, nil
		}
	}
	r.Codebook, r.Origin, r.From = first, Kept, sources[0]
	return true, nil
}

func identical(a, b *gefen.Codebook) bool {
	for k := range a {
		if !same(a[k], b[k]) {
			return false
		}
	}
	return true
}

// codeword orders codewords by value, -0 before +0; equal codewords are equal
// keys.
func codeword(v float32) uint32 {
	b := math.Float32bits(v)
	if b>>31 == 1 {
		return ^b
	}
	return b | 1<<31
}

func fromCodeword(key uint32) float32 {
	if key>>31 == 1 {
		return math.Float32frombits(key &^ (1 << 31))
	}
	return math.Float32frombits(^key)
}

// merge gives the rank a codebook with the given codewords, at most 256 with -1
// and +1 among them, and renames the indices of the sources. Free places are
// filled with codewords of the sources, evenly, as the next steps will use them.
func (r *Rank) merge(src Source, sources []int, words []uint32) error {
	var spare []uint32
	for _, s := range sources {
		book, err := codebook(src, s)
		if err != nil {
			return err
		}
		for _, v := range book {
			if key := codeword(v); !slices.Contains(words, key) {
				spare = append(spare, key)
			}
		}
	}
	slices.Sort(spare)
	spare = slices.Compact(spare)
	free := min(len(r.Codebook)-len(words), len(spare))
	all := slices.Clone(words)
	for i := range free {
		all = append(all, spare[(2*i+1)*len(spare)/(2*free)])
	}
	slices.Sort(all)
	var book gefen.Codebook
	for i := range book {
		book[i] = fromCodeword(all[min(i, len(all)-1)])
	}
	r.Codebook, r.Origin = &book, Merged
	return r.remap(src, sources, exactly(&book))
}

// learn gives the rank the best codebook for the points.
func (r *Rank) learn(src Source, sources []int, p *points) error {
	r.Codebook, r.Origin = p.codebook(), Learnt
	near := gefen.NewQuantizer(r.Codebook)
	return r.remap(src, sources, func(v float32) uint8 {
		var index [1]uint8
		near.Nearest(index[:], []float32{v})
		return index[0]
	})
}

// remap renames the indices of the sources: find gives the new index of a
// codeword.
func (r *Rank) remap(src Source, sources []int, find func(float32) uint8) error {
	for _, s := range sources {
		book, err := codebook(src, s)
		if err != nil {
			return err
		}
		var to [256]uint8
		changed := false
		for k, v := range book {
			to[k] = find(v)
			// A repeated codeword may have several indices.
			if same(r.Codebook[k], v) {
				to[k] = uint8(k)
			}
			changed = changed || int(to[k]) != k
		}
		r.Remap[s] = nil
		if changed {
			r.Remap[s] = &to
		}
	}
	return nil
}

// exactly finds codewords in a codebook that has those in use. For others, which
// only blocks of zeros have, it finds the nearest of the same sign.
func exactly(book *gefen.Codebook) func(float32) uint8 {
	return func(v float32) uint8 {
		best := 0
		for k, c := range book {
			if same(c, v) {
				return uint8(k)
			}
			signed := math.Signbit(float64(c)) == math.Signbit(float64(v))
			wrong := math.Signbit(float64(book[best])) != math.Signbit(float64(v))
			if signed && (wrong || math.Abs(float64(c-v)) < math.Abs(float64(book[best]-v))) {
				best = k
			}
		}
		return uint8(best)
	}
}

// dictionary numbers the codewords of several codebooks.
type dictionary struct {
	words  []uint32       // sorted
	number map[uint32]int // position in words
}

func newDictionary(src Source, sources []int) (*dictionary, error) {
	d := &dictionary{words: []uint32{codeword(-1), codeword(1)}, number: map[uint32]int{}}
	for _, s := range sources {
		book, err := codebook(src, s)
		if err != nil {
			return nil, err
		}
		for _, v := range book {
			d.words = append(d.words, codeword(v))
		}
	}
	slices.Sort(d.words)
	d.words = slices.Compact(d.words)
	for i, w := range d.words {
		d.number[w] = i
	}
	return d, nil
}

// set is a set of codewords, by number.
type set []uint64

func (d *dictionary) none() set { return make(set, (len(d.words)+63)/64) }

// ends is the set of -1 and +1, which every codebook has.
func (d *dictionary) ends() set {
	s := d.none()
	s.put(d.number[codeword(-1)])
	s.put(d.number[codeword(1)])
	return s
}

// of is the set of codewords in use by a shard's pieces.
func (d *dictionary) of(pieces []codes, use []usage) set {
	s := d.none()
	for i := range pieces {
		for k, n := range use[i].count {
			if n > 0 {
				s.put(d.number[codeword(pieces[i].book[k])])
			}
		}
	}
	return s
}

// list gives the codewords of a set.
func (d *dictionary) list(s set) []uint32 {
	var out []uint32
	for i, w := range d.words {
		if s.has(i) {
			out = append(out, w)
		}
	}
	return out
}

func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 == 1 }

func (s set) put(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) union(o set) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}
