package pickle

import "slices"

// smallDict is how many entries are searched one by one.
const smallDict = 16

// dictIndex is where the string and integer keys of a dict stand, of as many
// entries as it is for.
type dictIndex struct {
	at      map[Value]int
	entries int
}

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.Pairs) }

// Get returns the value under a string key.
func (d *Dict) Get(key string) (Value, bool) { return d.get(key) }

// GetInt returns the value under an integer key.
func (d *Dict) GetInt(key int64) (Value, bool) { return d.get(key) }

func (d *Dict) get(key Value) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.Pairs[i].Value, true
	}
	return nil, false
}

// Set puts value under a string or int64 key: in place where the key exists, at
// the end otherwise.
func (d *Dict) Set(key, value Value) {
	if i := d.find(key); i >= 0 {
		d.Pairs[i].Value = value
		return
	}
	d.Pairs = append(d.Pairs, Pair{key, value})
	if index := d.index.Load(); index != nil {
		index.at[key] = index.entries
		index.entries++
	}
}

// Delete removes a string or int64 key and says whether it was there.
func (d *Dict) Delete(key Value) bool {
	i := d.find(key)
	if i < 0 {
		return false
	}
	d.Pairs = slices.Delete(d.Pairs, i, i+1)
	d.index.Store(nil)
	return true
}

// find is the position of a key, or -1.
func (d *Dict) find(key Value) int {
	if len(d.Pairs) <= smallDict {
		return search(d.Pairs, key)
	}
	index := d.index.Load()
	if index == nil || index.entries != len(d.Pairs) {
		index = newIndex(d.Pairs)
		d.index.Store(index)
	}
	if i, ok := index.at[key]; ok {
		return i
	}
	return -1
}

func newIndex(pairs []Pair) *dictIndex {
	index := &dictIndex{at: make(map[Value]int, len(pairs)), entries: len(pairs)}
	for i, p := range pairs {
		if hashable(p.Key) {
			index.at[p.Key] = i
		}
	}
	return index
}

// hashable says whether keys of this kind are looked up and compared.
func hashable(key Value) bool {
	switch key.(type) {
	case string, int64:
		return true
	}
	return false
}

// search looks for a string or integer key among few pairs, -1 if there is none.
func search(pairs []Pair, key Value) int {
	switch key := key.(type) {
	case string:
		return searchFor(pairs, key)
	case int64:
		return searchFor(pairs, key)
	}
	return -1
}

func searchFor[K string | int64](pairs []Pair, key K) int {
	for i := range pairs {
		if k, ok := pairs[i].Key.(K); ok && k == key {
			return i
		}
	}
	return -1
}

// NewDict is a dict of alternating keys and values.
func NewDict(items ...Value) *Dict {
	d := &Dict{Pairs: make([]Pair, 0, len(items)/2)}
	for i := 0; i+1 < len(items); i += 2 {
		d.Pairs = append(d.Pairs, Pair{items[i], items[i+1]})
	}
	return d
}

// NewList is a list of items.
func NewList(items ...Value) *List { return &List{Items: items} }

// NewTuple is a tuple of items.
func NewTuple(items ...Value) *Tuple { return &Tuple{Items: items} }

// IntList is a list of integers.
func IntList(n []int64) *List { return &List{Items: values(n)} }

// IntTuple is a tuple of integers.
func IntTuple(n []int64) *Tuple { return &Tuple{Items: values(n)} }

// StringList is a list of strings.
func StringList(s []string) *List { return &List{Items: values(s)} }

func values[T any](s []T) []Value {
	out := make([]Value, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}
