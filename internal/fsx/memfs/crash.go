package memfs

import "math/rand/v2"

// settle makes the changes durable that the sync of a directory covers, with the
// earlier ones of the same names.
func (m *FS) settle(dir *node) {
	type place struct {
		dir  *node
		name string
	}
	covered := map[place]bool{}
	durable := make([]bool, len(m.pending))
	for i := len(m.pending) - 1; i >= 0; i-- {
		c := m.pending[i]
		durable[i] = c.sync == dir
		for _, e := range c.edits {
			durable[i] = durable[i] || covered[place{e.dir, e.name}]
		}
		for _, e := range c.edits {
			if durable[i] {
				covered[place{e.dir, e.name}] = true
			}
		}
	}
	var left []change
	for i, c := range m.pending {
		if durable[i] {
			set(c.edits, func(n *node) map[string]*node { return n.durable })
		} else {
			left = append(left, c)
		}
	}
	m.pending = left
}

// Loss says how much of what is not durable a crash takes.
type Loss func() bool

// Losses of a crash: nothing, everything, or each with even chances.
func Nothing() bool    { return false }
func Everything() bool { return true }
func Chance(seed uint64) Loss {
	r := rand.New(rand.NewPCG(seed, 0))
	return func() bool { return r.IntN(2) == 0 }
}

// Crash returns a file system with what a disk could hold if the machine stopped
// now. The original stays as it is.
func (m *FS) Crash(lost Loss) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	disk := map[*node]map[string]*node{}
	names := func(n *node) map[string]*node {
		if disk[n] == nil {
			disk[n] = map[string]*node{}
			for name, child := range n.durable {
				disk[n][name] = child
			}
		}
		return disk[n]
	}
changes:
	for _, c := range m.pending {
		if lost() {
			continue
		}
		for _, e := range c.edits {
			if names(e.dir)[e.name] != e.from {
				continue changes // it builds on a change that was lost
			}
		}
		set(c.edits, names)
	}
	var clone func(n *node) *node
	clone = func(n *node) *node {
		out := newNode(n.mode)
		for name, child := range names(n) {
			c := clone(child)
			out.entries[name], out.durable[name] = c, c
		}
		if !n.mode.IsDir() {
			out.data = append(out.data, n.data[:n.synced]...)
			if rest := n.data[n.synced:]; !lost() {
				out.data = append(out.data, rest...)
			} else if !lost() {
				out.data = append(out.data, rest[:len(rest)/2]...)
			} else if !lost() { // its length was written, its bytes were not
				out.data = append(out.data, make([]byte, len(rest))...)
			}
			out.synced = len(out.data)
		}
		return out
	}
	out := New()
	out.NoExchange, out.FreeBytes = m.NoExchange, m.FreeBytes
	out.root = clone(m.root)
	return out
}
