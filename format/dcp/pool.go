package dcp

import (
	"container/list"
	"io"
	"sync"

	"gefenckpt/internal/fault"
)

var errClosed = fault.New(fault.Internal, "the directory is closed")

// pool keeps the things that are in use open, and up to most others that were.
// It is safe for concurrent use; a thing is opened once however many wait for it.
type pool[K comparable, V io.Closer] struct {
	open func(K) (V, error)
	most int

	mu      sync.Mutex
	entries map[K]*pooled[K, V]
	idle    list.List // of *pooled[K, V], the one used last in front
	closed  bool
}

type pooled[K comparable, V io.Closer] struct {
	key   K
	users int
	idle  *list.Element
	once  sync.Once
	value V
	err   error
}

func newPool[K comparable, V io.Closer](most int, open func(K) (V, error)) *pool[K, V] {
	return &pool[K, V]{open: open, most: most, entries: make(map[K]*pooled[K, V])}
}

// use calls do with the thing of key, opened if need be.
func (p *pool[K, V]) use(key K, do func(V) error) error {
	e := p.acquire(key)
	if e == nil {
		return errClosed
	}
	defer p.release(e)
	e.once.Do(func() { e.value, e.err = p.open(key) })
	if e.err != nil {
		return e.err
	}
	return do(e.value)
}

func (p *pool[K, V]) acquire(key K) *pooled[K, V] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	e := p.entries[key]
	if e == nil {
		e = &pooled[K, V]{key: key}
		p.entries[key] = e
	}
	if e.idle != nil {
		p.idle.Remove(e.idle)
		e.idle = nil
	}
	e.users++
	return e
}

func (p *pool[K, V]) release(e *pooled[K, V]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.users--; e.users > 0 {
		return
	}
	if e.err != nil { // the next user tries again
		delete(p.entries, e.key)
		return
	}
	e.idle = p.idle.PushFront(e)
	keep := p.most
	if p.closed {
		keep = 0
	}
	p.shrink(keep)
}

// shrink closes the longest idle things until at most keep are idle. The error
// of closing a file that was only read says nothing about what was read.
func (p *pool[K, V]) shrink(keep int) {
	for p.idle.Len() > keep {
		e := p.idle.Remove(p.idle.Back()).(*pooled[K, V])
		delete(p.entries, e.key)
		e.value.Close()
	}
}

// Close closes what is idle now, and what is in use as soon as it is not.
func (p *pool[K, V]) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.shrink(0)
}
