// Package memfs is a file system in memory for tests of what is written to disks:
// any operation of it can be made to fail, and its crash clones hold what a disk
// could hold after a power cut at that moment.
//
// What is durable: the bytes of a file up to its last Sync, and the names in a
// directory as of its last SyncDir. Of all other changes a clone has any part:
// some of the unsynced bytes, possibly zeroed, and any set of the unsynced
// changes of names whose own conditions still hold.
package memfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gefenckpt/internal/fsx"
)

// FS implements fsx.FS. It begins with an empty root directory "/"; New makes it.
type FS struct {
	// NoExchange makes Exchange unsupported, as many file systems have it.
	NoExchange bool
	// FreeBytes is what Free tells; negative: it is unsupported.
	FreeBytes int64

	mu      sync.Mutex
	root    *node
	pending []change // of names, oldest first
	ops     int
	failure Failure
}

var _ fsx.FS = (*FS)(nil)

// node is a file, a directory or a symbolic link.
type node struct {
	mode    fs.FileMode
	entries map[string]*node // of a directory
	durable map[string]*node // its names on the disk
	data    []byte           // of a file; the target of a link
	synced  int              // bytes of data on the disk
	locked  bool
}

func newNode(mode fs.FileMode) *node {
	n := &node{mode: mode}
	if mode.IsDir() {
		n.entries, n.durable = map[string]*node{}, map[string]*node{}
	}
	return n
}

// New returns an empty file system.
func New() *FS { return &FS{root: newNode(fs.ModeDir), FreeBytes: -1} }

// edit is one name that a change gives another node; nil is none.
type edit struct {
	dir      *node
	name     string
	from, to *node
}

// change is one operation on names: all its edits happen, or none.
type change struct {
	edits []edit
	sync  *node // the directory whose SyncDir makes it durable
}

// apply makes a change of names.
func (m *FS) apply(sync *node, edits ...edit) {
	set(edits, func(n *node) map[string]*node { return n.entries })
	m.pending = append(m.pending, change{edits, sync})
}

// set puts the edits into one of the two maps of their directories.
func set(edits []edit, of func(*node) map[string]*node) {
	for _, e := range edits {
		if e.to == nil {
			delete(of(e.dir), e.name)
		} else {
			of(e.dir)[e.name] = e.to
		}
	}
}

// split returns the directory of a path and its last element.
func (m *FS) split(path string) (dir *node, name string, err error) {
	parts := elements(path)
	if len(parts) == 0 {
		return nil, "", fs.ErrInvalid
	}
	dir = m.root
	for _, part := range parts[:len(parts)-1] {
		if dir = dir.entries[part]; dir == nil || !dir.mode.IsDir() {
			return nil, "", fs.ErrNotExist
		}
	}
	return dir, parts[len(parts)-1], nil
}

func elements(path string) []string {
	path = strings.Trim(filepath.ToSlash(filepath.Clean(path)), "/")
	if path == "" || path == "." {
		return nil
	}
	return strings.Split(path, "/")
}

// at returns the node of a path, and where it hangs.
func (m *FS) at(path string) (n, dir *node, name string, err error) {
	if len(elements(path)) == 0 {
		return m.root, nil, "", nil
	}
	dir, name, err = m.split(path)
	if err == nil {
		if n = dir.entries[name]; n == nil {
			err = fs.ErrNotExist
		}
	}
	return n, dir, name, err
}

// begin counts an operation and places the error that it is to fail with, or
// that it ends with.
func (m *FS) begin(op, path string, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.step()
	if err == nil {
		err = do()
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

func (m *FS) add(path string, n *node) error {
	dir, name, err := m.split(path)
	if err != nil {
		return err
	}
	if dir.entries[name] != nil {
		return fs.ErrExist
	}
	m.apply(dir, edit{dir, name, nil, n})
	return nil
}

// Create implements fsx.FS.
func (m *FS) Create(path string) (fsx.File, error) {
	n := newNode(0o644)
	if err := m.begin("create", path, func() error { return m.add(path, n) }); err != nil {
		return nil, err
	}
	return &file{m, n, path, false}, nil
}

// Open implements fsx.FS.
func (m *FS) Open(path string) (io.ReadCloser, error) {
	var data []byte
	err := m.begin("open", path, func() error {
		n, err := m.file(path)
		if err == nil {
			data = slices.Clone(n.data)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Append implements fsx.FS.
func (m *FS) Append(path string, size int64) (fsx.File, error) {
	var n *node
	err := m.begin("append", path, func() (err error) {
		if n, err = m.file(path); err != nil {
			return err
		}
		if size > int64(len(n.data)) {
			return fs.ErrInvalid
		}
		n.data, n.synced = n.data[:size:size], min(n.synced, int(size))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &file{m, n, path, false}, nil
}

// file is the node of a plain file.
func (m *FS) file(path string) (*node, error) {
	n, _, _, err := m.at(path)
	if err == nil && !n.mode.IsRegular() {
		err = fs.ErrInvalid
	}
	return n, err
}

// Mkdir implements fsx.FS.
func (m *FS) Mkdir(path string) error {
	return m.begin("mkdir", path, func() error { return m.add(path, newNode(fs.ModeDir|0o755)) })
}

// Lstat implements fsx.FS.
func (m *FS) Lstat(path string) (info fs.FileInfo, err error) {
	err = m.begin("lstat", path, func() error {
		n, _, name, err := m.at(path)
		info = entry{name, n}
		return err
	})
	return info, err
}

// ReadDir implements fsx.FS.
func (m *FS) ReadDir(path string) (out []fs.DirEntry, err error) {
	err = m.begin("readdir", path, func() error {
		n, _, _, err := m.at(path)
		if err != nil {
			return err
		}
		for name, child := range n.entries {
			out = append(out, entry{name, child})
		}
		slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		return nil
	})
	return out, err
}

// Rename implements fsx.FS.
func (m *FS) Rename(oldpath, newpath string) error {
	return m.begin("rename", newpath, func() error { return m.rename(oldpath, newpath, true) })
}

// RenameNew implements fsx.FS.
func (m *FS) RenameNew(oldpath, newpath string) error {
	return m.begin("rename", newpath, func() error { return m.rename(oldpath, newpath, false) })
}

func (m *FS) rename(oldpath, newpath string, replace bool) error {
	n, from, name, err := m.at(oldpath)
	if err != nil {
		return err
	}
	to, newname, err := m.split(newpath)
	if err != nil {
		return err
	}
	there := to.entries[newname]
	if there != nil && (!replace || there.mode.IsDir() || n.mode.IsDir()) {
		return fs.ErrExist
	}
	m.apply(to, edit{from, name, n, nil}, edit{to, newname, there, n})
	return nil
}

// Exchange implements fsx.FS.
func (m *FS) Exchange(a, b string) error {
	return m.begin("exchange", b, func() error {
		if m.NoExchange {
			return errors.ErrUnsupported
		}
		x, xdir, xname, err := m.at(a)
		if err != nil {
			return err
		}
		y, ydir, yname, err := m.at(b)
		if err != nil {
			return err
		}
		m.apply(ydir, edit{xdir, xname, x, y}, edit{ydir, yname, y, x})
		return nil
	})
}

// Remove implements fsx.FS.
func (m *FS) Remove(path string) error {
	return m.begin("remove", path, func() error {
		n, dir, name, err := m.at(path)
		switch {
		case err != nil:
			return err
		case len(n.entries) > 0:
			return fs.ErrExist
		}
		m.apply(dir, edit{dir, name, n, nil})
		return nil
	})
}

// SyncDir implements fsx.FS.
func (m *FS) SyncDir(path string) error {
	return m.begin("syncdir", path, func() error {
		n, _, _, err := m.at(path)
		if err == nil {
			m.settle(n)
		}
		return err
	})
}

// Lock implements fsx.FS.
func (m *FS) Lock(path string) (io.Closer, error) {
	var n *node
	err := m.begin("lock", path, func() (err error) {
		if n, _, _, err = m.at(path); err != nil {
			return err
		}
		if n.locked {
			return fsx.ErrLocked
		}
		n.locked = true
		return nil
	})
	return &lock{m, n}, err
}

// lock is held until it is closed.
type lock struct {
	m *FS
	n *node
}

func (l *lock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.n.locked = false
	return nil
}

// Free implements fsx.FS.
func (m *FS) Free(path string) (free int64, err error) {
	err = m.begin("free", path, func() error {
		if m.FreeBytes < 0 {
			return errors.ErrUnsupported
		}
		free = m.FreeBytes
		return nil
	})
	return free, err
}
