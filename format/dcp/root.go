package dcp

import (
	"fmt"

	"gefenckpt/format/pickle"
	"gefenckpt/format/tensor"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
)

// build makes the tree that was saved from the items and their paths: where the
// next step is a position there is a list, else a dict. Positions that no item
// fills were empty dicts, as a rule, and are None.
func (d *Directory) build() pickle.Value {
	m := d.Metadata
	b := builder{
		m:    m,
		kids: make(map[edge]int32, len(m.Items)+len(m.Items)/4),
		root: &pickle.Dict{},
	}
	b.nodes = append(b.nodes, node{dict: b.root})
	leaves := newLeaves(d)
	for i := range m.Items {
		item := &m.Items[i]
		leaf := leaves.leaf(int32(i))
		if f := b.place(item, leaf); f != nil {
			m.blame(item, f)
		}
	}
	if b.holes > 0 {
		m.note(fmt.Sprintf("%d positions of lists have no item: they are None", b.holes))
	}
	return b.root
}

// builder grows the tree.
type builder struct {
	m     *Metadata
	root  *pickle.Dict
	nodes []node
	kids  map[edge]int32 // the node that a step leads to; leafNode for an item
	holes int64
}

// node is a dict or a list.
type node struct {
	dict *pickle.Dict
	list *pickle.List
}

// edge is a step from a node: the step is an index into Metadata.parts.
type edge struct{ node, step int32 }

const leafNode = -1

// place puts a leaf where its path leads.
func (b *builder) place(item *Item, leaf pickle.Value) *fault.Error {
	steps := b.m.steps(item)
	at := int32(0)
	for i, step := range steps {
		last := i == len(steps)-1
		key := b.m.parts[step]
		if _, isKey := key.(string); isKey != (b.nodes[at].dict != nil) {
			return fault.New(fault.Corrupt, "the paths of items disagree on whether %q is a dict or a list", b.m.Path(item)[:i].String())
		}
		next, known := b.kids[edge{at, step}]
		switch {
		case known && (last || next == leafNode):
			return fault.New(fault.Corrupt, "another item stands at %q", b.m.Path(item)[:i+1].String())
		case known:
			at = next
			continue
		}
		child := leaf
		if next = leafNode; !last {
			next = int32(len(b.nodes))
			child = b.grow(steps[i+1])
		}
		if f := b.put(at, key, child); f != nil {
			return f
		}
		b.kids[edge{at, step}] = next
		at = next
	}
	return nil
}

// grow adds the node that the given step starts from.
func (b *builder) grow(step int32) pickle.Value {
	if _, isKey := b.m.parts[step].(string); isKey {
		dict := &pickle.Dict{}
		b.nodes = append(b.nodes, node{dict: dict})
		return dict
	}
	list := &pickle.List{}
	b.nodes = append(b.nodes, node{list: list})
	return list
}

// put sets one child of a node.
func (b *builder) put(at int32, key, child pickle.Value) *fault.Error {
	if dict := b.nodes[at].dict; dict != nil {
		dict.Pairs = append(dict.Pairs, pickle.Pair{Key: key, Value: child})
		return nil
	}
	list, position := b.nodes[at].list, key.(int64)
	if n := int64(len(list.Items)); position >= n {
		if b.holes += position - n; b.holes > int64(len(b.m.Items))+1000 {
			return fault.New(fault.Corrupt, "its path has the position %d in a list of which %d items are known", position, n)
		}
		list.Items = append(list.Items, make([]pickle.Value, position-n+1)...)
	} else {
		b.holes--
	}
	list.Items[position] = child
	return nil
}

// leaves makes the leaves of the tree, all of a kind in one piece of memory.
type leaves struct {
	d       *Directory
	tensors []tensor.Tensor
	chunks  []tensor.Chunk
	stores  []store
	lazies  []tree.Lazy
}

func newLeaves(d *Directory) *leaves {
	var tensors, chunks, lazies int
	for i := range d.Metadata.Items {
		if item := &d.Metadata.Items[i]; item.readable() {
			tensors++
			chunks += len(item.Chunks)
		} else {
			lazies++
		}
	}
	return &leaves{
		d:       d,
		tensors: make([]tensor.Tensor, 0, tensors),
		chunks:  make([]tensor.Chunk, 0, chunks),
		stores:  make([]store, 0, chunks),
		lazies:  make([]tree.Lazy, 0, lazies),
	}
}

// add appends to a slice that has room, and returns where.
func add[T any](list *[]T, v T) *T {
	*list = append(*list, v)
	return &(*list)[len(*list)-1]
}

// readable says whether an item is a tensor whose chunks can be told.
func (item *Item) readable() bool { return item.Tensor && item.Fault == nil }

// leaf is what stands in the tree for an item. A tensor at fault is a lazy value
// that gives the fault, for neither its shape nor its chunks can be relied on.
func (l *leaves) leaf(i int32) pickle.Value {
	item := &l.d.Metadata.Items[i]
	if !item.readable() {
		return add(&l.lazies, tree.Lazy{Load: func() (pickle.Value, error) { return l.d.load(i) }})
	}
	t := tensor.Tensor{DType: item.DType, Shape: item.Shape, RequiresGrad: item.RequiresGrad}
	first := len(l.chunks)
	for c := range item.Chunks {
		box := &item.Chunks[c]
		if len(item.Chunks) > 1 && volume(box.Shape) == 0 {
			continue // an empty shard
		}
		l.chunks = append(l.chunks, tensor.Chunk{
			Offset:  box.Offset,
			Shape:   box.Shape,
			Storage: add(&l.stores, store{l.d, itemID{i, int32(c)}}),
			Stride:  tensor.RowMajor(box.Shape),
		})
	}
	t.Chunks = l.chunks[first:len(l.chunks):len(l.chunks)]
	return add(&l.tensors, t)
}
