package dcp

import (
	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// Metadata says which items a directory holds and where their bytes lie. It is
// built for a million items: everything that repeats is kept once.
type Metadata struct {
	Items []Item   // in the order of the file
	Files []string // relative paths of the files that hold items

	// Planned says whether the file has planner_data, without which the tree
	// that was saved cannot be rebuilt.
	Planned bool
	// Torch is the range of PyTorch releases that write this form, in words.
	Torch string
	// Notes are deviations from what a current PyTorch writes that do no harm.
	Notes []string
	// Faults are contradictions within the metadata, in order of discovery.
	Faults []*fault.Error

	blamed     int              // items at fault, and more than once where they are
	byName     map[string]int32 // FQN to position in Items
	parts      []pickle.Value   // steps of paths, each once
	paths      []int32          // of all items, end to end: indices into parts
	transforms [][]string       // lists of transform descriptors, each once
}

// Item is one entry of the flattened state dict: a tensor, cut into chunks, or a
// Python object ("bytes").
type Item struct {
	FQN    string
	Tensor bool
	// DType is 0 for bytes, and for a tensor whose type is not known.
	DType        tensor.DType
	RequiresGrad bool
	Shape        []int64
	Chunks       []Chunk // one, without a box, for bytes
	// Fault is what is wrong with the item as a whole, nil if nothing is.
	Fault *fault.Error

	path, depth int32 // paths[path : path+depth]
}

// Chunk is a box of a tensor, or the whole of a bytes item.
type Chunk struct {
	Offset, Shape []int64 // in elements per dimension
	Place         Place
}

// Place is where the bytes of a chunk lie. File is an index into
// [Metadata.Files], or noFile where no storage entry names the chunk.
type Place struct {
	Offset, Length int64
	File           int32
	transforms     int32 // index into Metadata.transforms, or 0 for none
}

const noFile = -1

// Find returns the item of a name, or nil.
func (m *Metadata) Find(fqn string) *Item {
	if i, ok := m.byName[fqn]; ok {
		return &m.Items[i]
	}
	return nil
}

// after finds an item by name, first where the items go on behind position at:
// the parts of a metadata file come in the same order, for the most part, and a
// million look-ups in a map take their time.
func (m *Metadata) after(at int, fqn string) (int, *Item) {
	for next := at; next <= at+1 && next < len(m.Items); next++ {
		if m.Items[next].FQN == fqn {
			return next, &m.Items[next]
		}
	}
	if i, ok := m.byName[fqn]; ok {
		return int(i), &m.Items[i]
	}
	return at, nil
}

// Path is where the item stands in the tree that was saved: string keys of dicts
// and int64 positions of lists. Without planner_data it is the FQN alone.
func (m *Metadata) Path(item *Item) tree.Path {
	steps := m.steps(item)
	path := make(tree.Path, len(steps))
	for i, step := range steps {
		path[i] = m.parts[step]
	}
	return path
}

func (m *Metadata) steps(item *Item) []int32 {
	return m.paths[item.path : item.path+item.depth]
}

// Transforms are the names of what was done to the bytes of a chunk when they
// were written, in the order in which a reader undoes it.
func (m *Metadata) Transforms(c *Chunk) []string { return m.transforms[c.Place.transforms] }

// mostFaults bounds how many faults of one directory are kept: a directory that
// has more than this is described well enough.
const mostFaults = 64

// addFault keeps a fault unless there are many already.
func (m *Metadata) addFault(f *fault.Error) {
	if len(m.Faults) < mostFaults {
		m.Faults = append(m.Faults, f)
	}
}

// blame gives an item its fault, the first one only. Past many, they share one:
// a file can be at fault in every item, and each fault takes more memory than the
// item.
func (m *Metadata) blame(item *Item, f *fault.Error) {
	if m.blamed++; m.blamed > mostBlamed {
		if item.Fault == nil {
			item.Fault = errBlamed
		}
		return
	}
	f = f.In(item.FQN)
	if item.Fault == nil {
		item.Fault = f
	}
	m.addFault(f)
}

// mostBlamed is how many items have a fault of their own.
const mostBlamed = 1000

var errBlamed = fault.New(fault.Corrupt, "the item is one of more than %d at fault", mostBlamed)

// note keeps a note once.
func (m *Metadata) note(text string) {
	for _, n := range m.Notes {
		if n == text {
			return
		}
	}
	if len(m.Notes) < mostFaults {
		m.Notes = append(m.Notes, text)
	}
}

// volume is the number of elements of a box whose size is known to be bounded.
func volume(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}
