package dcp

import (
	"fmt"
	"slices"

	"gefenckpt/format/pickle"
	"gefenckpt/internal/fault"
)

// union joins the metadata files that ranks wrote each for itself, in a save
// without collectives: each has its rank's own chunks of every tensor, and all
// of what is replicated, of which the first rank's copy is taken.
type union struct {
	m          *Metadata
	files      map[string]int32
	transforms map[string]int32
	steps      map[pickle.Value]int32
	chunks     map[chunkKey]bool
}

type chunkKey struct {
	item int32
	box  string
}

func newUnion() *union {
	return &union{
		m:          &Metadata{transforms: [][]string{nil}, byName: make(map[string]int32)},
		files:      make(map[string]int32),
		transforms: make(map[string]int32),
		steps:      make(map[pickle.Value]int32),
		chunks:     make(map[chunkKey]bool),
	}
}

// intern returns the position of value in list, where equal keys are one.
func intern[K comparable, V any](known map[K]int32, list *[]V, key K, value V) int32 {
	i, ok := known[key]
	if !ok {
		i = int32(len(*list))
		known[key] = i
		*list = append(*list, value)
	}
	return i
}

// add takes in what one rank wrote.
func (u *union) add(other *Metadata) error {
	m := u.m
	if m.Torch == "" {
		m.Torch, m.Planned = other.Torch, other.Planned
	}
	for _, n := range other.Notes {
		m.note(n)
	}
	for _, f := range other.Faults {
		same := func(g *fault.Error) bool { return g.Error() == f.Error() }
		if !slices.ContainsFunc(m.Faults, same) {
			m.addFault(f)
		}
	}
	for i := range other.Items {
		theirs := &other.Items[i]
		at, ok := m.byName[theirs.FQN]
		if !ok {
			at = int32(len(m.Items))
			m.byName[theirs.FQN] = at
			item := *theirs
			item.Chunks, item.path = nil, int32(len(m.paths))
			for _, step := range other.steps(theirs) {
				m.paths = append(m.paths, intern(u.steps, &m.parts, other.parts[step], other.parts[step]))
			}
			m.Items = append(m.Items, item)
		}
		item := &m.Items[at]
		if item.Tensor != theirs.Tensor || item.DType != theirs.DType || !slices.Equal(item.Shape, theirs.Shape) {
			return fault.New(fault.Corrupt, "the ranks disagree on it: %s here, and %s before", theirs, item).In(item.FQN)
		}
		for c := range theirs.Chunks {
			u.addChunk(at, other, theirs.Chunks[c])
		}
	}
	return nil
}

// addChunk adds a chunk to an item that does not have it yet.
func (u *union) addChunk(at int32, other *Metadata, c Chunk) {
	key := chunkKey{at, fmt.Sprint(c.Offset, c.Shape)}
	if u.chunks[key] {
		return
	}
	u.chunks[key] = true
	if c.Place.File != noFile {
		name := other.Files[c.Place.File]
		c.Place.File = intern(u.files, &u.m.Files, name, name)
		if names := other.Transforms(&c); len(names) > 0 {
			c.Place.transforms = intern(u.transforms, &u.m.transforms, fmt.Sprintf("%q", names), names)
		}
	}
	item := &u.m.Items[at]
	item.Chunks = append(item.Chunks, c)
}

// String says what an item is.
func (item *Item) String() string {
	if !item.Tensor {
		return "bytes"
	}
	return fmt.Sprintf("a tensor %s %v", item.DType, item.Shape)
}

// finish checks the whole. The ranks must be all of them, as far as that can be
// told from their numbers and from the chunks.
func (u *union) finish(ranks []int) *Metadata {
	u.m.note(fmt.Sprintf("the save was made without collectives: there is no .metadata, and those of %s were joined", rankList(ranks)))
	if n := len(ranks); ranks[n-1] != n-1 {
		missing := 0
		for missing < n && ranks[missing] == missing {
			missing++
		}
		u.m.addFault(fault.New(fault.Incomplete, "there are metadata files of %s, and none of rank %d", rankList(ranks), missing).
			WithHint("copy the files of the other machines here"))
	}
	u.m.check()
	return u.m
}
