package dcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// ReadMetadata reads a metadata file, as PyTorch 2.1 and newer write it. An error
// is what keeps the file from being read at all; contradictions in what it says
// are gathered in [Metadata.Faults], and harmless deviations in Notes.
func ReadMetadata(data []byte) (*Metadata, error) {
	m, err := assemble(data)
	if err != nil {
		return nil, err
	}
	m.check()
	return m, nil
}

// assemble reads a metadata file without checking that its items are whole.
func assemble(data []byte) (*Metadata, error) {
	if len(data) == 0 {
		return nil, fault.New(fault.Incomplete, "the file is empty").
			WithHint("the save was cut short; use another checkpoint")
	}
	m := &Metadata{transforms: [][]string{nil}}
	f := &folder{
		m:          m,
		files:      make(map[string]int32),
		transforms: make(map[string]int32),
		sizes:      make(map[string]*dims),
		room:       len(data) / chunkBytes,
	}
	root, err := pickle.Decode(data, pickle.Options{Build: f.build, Reduce: f.reduce})
	if err != nil {
		return nil, err
	}
	top, ok := root.(*pickle.Object)
	if !ok || top.Class.Module != metadataModule || top.Class.Name != "Metadata" {
		return nil, fault.New(fault.Corrupt, "the pickle is %s, not the Metadata of a distributed checkpoint", tree.Describe(root))
	}
	pairs, err := attributes(top)
	if err != nil {
		return nil, err
	}
	var items, planned, stored *pickle.Dict
	var hasMeta, hasVersion bool
	for _, p := range pairs {
		switch p.Key {
		case "state_dict_metadata":
			items, ok = p.Value.(*pickle.Dict)
		case "planner_data":
			planned, ok = p.Value.(*pickle.Dict)
			ok = ok || p.Value == nil
		case "storage_data":
			stored, ok = p.Value.(*pickle.Dict)
		case "storage_meta":
			hasMeta = p.Value != nil
		case "version":
			hasVersion = true
		default:
			f.unknown(top, p.Key)
		}
		if !ok {
			return nil, wrongType(top, p.Key, p.Value, "a dict")
		}
	}
	if items == nil {
		return nil, missing(top, "state_dict_metadata")
	}
	if stored == nil {
		return nil, missing(top, "storage_data")
	}
	m.Torch = f.release(hasMeta, hasVersion)
	if err := m.addItems(items, len(data)/chunkBytes); err != nil {
		return nil, err
	}
	if err := m.addPaths(planned); err != nil {
		return nil, err
	}
	if err := m.addPlaces(stored); err != nil {
		return nil, err
	}
	return m, nil
}

// release says which PyTorch releases write what was seen.
func (f *folder) release(hasMeta, hasVersion bool) string {
	switch {
	case f.strides:
		return "2.15 or newer"
	case hasVersion:
		return "2.9 to 2.14"
	case f.modules:
		return "2.7 or 2.8"
	case hasMeta:
		return "2.4 to 2.6"
	case f.sharded:
		return "2.1 or 2.2"
	}
	return "2.3 or older"
}

// chunkBytes is less than any chunk takes in a file, unless it is shared.
const chunkBytes = 8

// addItems takes the items from state_dict_metadata. They may have so many chunks
// in all.
func (m *Metadata) addItems(dict *pickle.Dict, most int) error {
	chunks := 0
	for _, p := range dict.Pairs {
		chunks++
		if o, ok := p.Value.(*pickle.Object); ok {
			if entry, ok := o.State.(*tensorEntry); ok {
				chunks += len(entry.chunks) - 1
			}
		}
	}
	if chunks > most {
		return fault.New(fault.Corrupt, "items share their chunks: there are %d, and the file has room for %d", chunks, most)
	}
	room := make([]Chunk, 0, chunks)
	m.Items = make([]Item, 0, len(dict.Pairs))
	m.byName = make(map[string]int32, len(dict.Pairs))
	for _, p := range dict.Pairs {
		fqn, ok := p.Key.(string)
		if !ok {
			return fault.New(fault.Corrupt, "a key of state_dict_metadata is %s, not a str", tree.Describe(p.Key))
		}
		if _, twice := m.byName[fqn]; twice {
			return fault.New(fault.Corrupt, "state_dict_metadata has the key twice").In(fqn)
		}
		o, ok := p.Value.(*pickle.Object)
		if !ok {
			return fault.New(fault.Corrupt, "its metadata is %s", tree.Describe(p.Value)).In(fqn)
		}
		item := Item{FQN: fqn}
		first := len(room)
		entry, ok := o.State.(*tensorEntry)
		switch {
		case ok:
			item.Tensor, item.Shape = true, entry.size
			item.DType, item.RequiresGrad = entry.dtype, entry.requiresGrad
			for _, box := range entry.chunks {
				room = append(room, Chunk{box.offset, box.size, Place{File: noFile}})
			}
		case o.Class.Module == metadataModule && o.Class.Name == "BytesStorageMetadata":
			room = append(room, Chunk{Place: Place{File: noFile}})
		default:
			return fault.New(fault.Unsupported, "its metadata is %s, which is neither a tensor nor bytes", tree.Describe(o)).In(fqn)
		}
		item.Chunks = room[first:len(room):len(room)]
		m.byName[fqn] = int32(len(m.Items))
		m.Items = append(m.Items, item)
		if ok && entry.problem != nil {
			m.blame(&m.Items[len(m.Items)-1], entry.problem)
		}
	}
	return nil
}

// addPaths takes the paths from planner_data. An item without one stands under
// its flattened name.
func (m *Metadata) addPaths(dict *pickle.Dict) error {
	known := make(map[pickle.Value]int32)
	unplanned := len(m.Items)
	if dict != nil {
		m.Planned = true
		strays, at := 0, 0
		var item *Item
		for _, p := range dict.Pairs {
			fqn, _ := p.Key.(string)
			if at, item = m.after(at, fqn); item == nil {
				strays++
				continue
			}
			tuple, ok := p.Value.(*pickle.Tuple)
			if !ok {
				return fault.New(fault.Corrupt, "its path in planner_data is %s, not a tuple", tree.Describe(p.Value)).In(fqn)
			}
			if item.depth != 0 {
				return fault.New(fault.Corrupt, "planner_data has the key twice").In(fqn)
			}
			unplanned--
			path := tuple.Items
			switch {
			case len(path) > mostNested:
				m.blame(item, fault.New(fault.Corrupt, "its path in planner_data has %d steps, and %d are followed", len(path), mostNested))
				path = []pickle.Value{fqn}
			case !spells(path, fqn):
				m.blame(item, fault.New(fault.Corrupt, "its path in planner_data does not spell its name"))
				path = []pickle.Value{fqn}
			}
			m.setPath(item, path, known)
		}
		if strays > 0 {
			m.note(fmt.Sprintf("planner_data has %d paths of items that are not there", strays))
		}
	}
	for i := range m.Items {
		if item := &m.Items[i]; item.depth == 0 {
			m.setPath(item, []pickle.Value{item.FQN}, known)
		}
	}
	m.paths = slices.Clip(m.paths)
	if unplanned > 0 {
		m.note(fmt.Sprintf("planner_data has no path for %d items: they stand under their flattened names", unplanned))
	}
	return nil
}

func (m *Metadata) setPath(item *Item, path []pickle.Value, known map[pickle.Value]int32) {
	item.path, item.depth = int32(len(m.paths)), int32(len(path))
	for _, step := range path {
		m.paths = append(m.paths, intern(known, &m.parts, step, step))
	}
}

// spells says whether a path consists of keys and positions that, joined by dots,
// are the name: torch makes every name so.
func spells(path []pickle.Value, name string) bool {
	for i, step := range path {
		if i > 0 {
			var found bool
			if name, found = strings.CutPrefix(name, "."); !found {
				return false
			}
		}
		key, ok := step.(string)
		if position, isInt := step.(int64); isInt && position >= 0 {
			key, ok = strconv.FormatInt(position, 10), true
		}
		if !ok {
			return false
		}
		if name, ok = strings.CutPrefix(name, key); !ok {
			return false
		}
	}
	return name == "" && len(path) > 0
}

// addPlaces takes the places of chunks from storage_data.
func (m *Metadata) addPlaces(dict *pickle.Dict) error {
	finders := make(map[*Item]map[string]int)
	at := 0
	var item *Item
	for _, p := range dict.Pairs {
		var key *indexKey
		if o, ok := p.Key.(*pickle.Object); ok {
			key, _ = o.State.(*indexKey)
		}
		if key == nil {
			return fault.New(fault.Corrupt, "a key of storage_data is %s, not a MetadataIndex", tree.Describe(p.Key))
		}
		var place *Place
		if o, ok := p.Value.(*pickle.Object); ok {
			place, _ = o.State.(*Place)
		}
		if place == nil {
			return fault.New(fault.Corrupt, "its entry in storage_data is %s, not a _StorageInfo", tree.Describe(p.Value)).In(key.fqn)
		}
		if at, item = m.after(at, key.fqn); item == nil {
			m.addFault(fault.New(fault.Corrupt, "storage_data has an entry for it, and state_dict_metadata has none").In(key.fqn))
			continue
		}
		chunk := item.chunk(key, finders)
		switch {
		case chunk == nil:
			m.blame(item, fault.New(fault.Corrupt, "storage_data has an entry %s, where no chunk begins", key))
		case chunk.Place.File != noFile:
			m.blame(item, fault.New(fault.Corrupt, "storage_data has two entries %s", key))
		default:
			chunk.Place = *place
		}
	}
	return nil
}

// String says which entry of an item a key means.
func (k *indexKey) String() string {
	if !k.hasOffset {
		return "without an offset"
	}
	return fmt.Sprintf("at offset %v", k.offset)
}

// fewChunks is how many chunks are searched one by one.
const fewChunks = 8

// chunk finds the chunk that a key of storage_data means: torch compares names
// and offsets, and takes the index for a hint. finders has, for items of many
// chunks, where each offset is.
func (item *Item) chunk(key *indexKey, finders map[*Item]map[string]int) *Chunk {
	switch {
	case item.Tensor != key.hasOffset:
		return nil
	case !item.Tensor:
		return &item.Chunks[0]
	case key.hint >= 0 && key.hint < int64(len(item.Chunks)):
		if c := &item.Chunks[key.hint]; slices.Equal(c.Offset, key.offset) {
			return c
		}
	}
	if len(item.Chunks) <= fewChunks {
		for i := range item.Chunks {
			if slices.Equal(item.Chunks[i].Offset, key.offset) {
				return &item.Chunks[i]
			}
		}
		return nil
	}
	finder := finders[item]
	if finder == nil {
		finder = make(map[string]int, len(item.Chunks))
		for i := range item.Chunks {
			finder[fmt.Sprint(item.Chunks[i].Offset)] = i
		}
		finders[item] = finder
	}
	if i, ok := finder[fmt.Sprint(key.offset)]; ok {
		return &item.Chunks[i]
	}
	return nil
}
