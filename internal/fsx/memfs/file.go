package memfs

import (
	"fmt"
	"io/fs"
	"time"
)

// file is an open file of an FS.
type file struct {
	m      *FS
	n      *node
	path   string
	closed bool
}

func (f *file) do(op string, do func() error) error {
	return f.m.begin(op, f.path, func() error {
		if f.closed {
			return fs.ErrClosed
		}
		return do()
	})
}

// Write implements fsx.File. A write that is made to fail writes the first half.
func (f *file) Write(p []byte) (n int, err error) {
	err = f.do("write", func() error {
		n = len(p)
		f.n.data = append(f.n.data, p...)
		return nil
	})
	if err != nil && !f.closed {
		n = len(p) / 2
		f.n.data = append(f.n.data, p[:n]...)
		if f.m.failure.Short {
			err = nil
		}
	}
	return n, err
}

// Sync implements fsx.File.
func (f *file) Sync() error {
	return f.do("sync", func() error {
		f.n.synced = len(f.n.data)
		return nil
	})
}

// Close implements fsx.File. A close that is made to fail closes all the same.
func (f *file) Close() error {
	err := f.do("close", func() error { return nil })
	f.closed = true
	return err
}

// entry is a name and its node, as fs.FileInfo and fs.DirEntry.
type entry struct {
	name string
	n    *node
}

func (e entry) Name() string               { return e.name }
func (e entry) Size() int64                { return int64(len(e.n.data)) }
func (e entry) Mode() fs.FileMode          { return e.n.mode }
func (e entry) Type() fs.FileMode          { return e.n.mode.Type() }
func (e entry) IsDir() bool                { return e.n.mode.IsDir() }
func (e entry) ModTime() time.Time         { return time.Time{} }
func (e entry) Sys() any                   { return nil }
func (e entry) Info() (fs.FileInfo, error) { return e, nil }

// Put makes a file with its contents, and the directories above it, all durable.
// It counts as no operation.
func (m *FS) Put(path, contents string) {
	m.put(path, &node{mode: 0o644, data: []byte(contents), synced: len(contents)})
}

// PutLink makes a symbolic link, as Put does a file.
func (m *FS) PutLink(path, target string) {
	m.put(path, &node{mode: fs.ModeSymlink | 0o777, data: []byte(target), synced: len(target)})
}

// PutDir makes a directory, as Put does a file.
func (m *FS) PutDir(path string) { m.put(path, newNode(fs.ModeDir|0o755)) }

func (m *FS) put(path string, leaf *node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, parts := m.root, elements(path)
	for i, part := range parts {
		child := dir.entries[part]
		switch {
		case i == len(parts)-1 && child != nil:
			panic(fmt.Sprintf("%s is there already", path))
		case i == len(parts)-1:
			child = leaf
		case child == nil:
			child = newNode(fs.ModeDir | 0o755)
		}
		dir.entries[part], dir.durable[part] = child, child
		dir = child
	}
}

// Tree is all that the file system holds: the contents of each file by its path,
// "-> " and the target of a link, and "" for the path of a directory, which ends
// in a slash.
func (m *FS) Tree() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	var walk func(prefix string, n *node)
	walk = func(prefix string, n *node) {
		for name, child := range n.entries {
			path := prefix + name
			switch {
			case child.mode.IsDir():
				out[path+"/"] = ""
				walk(path+"/", child)
			case child.mode&fs.ModeSymlink != 0:
				out[path] = "-> " + string(child.data)
			default:
				out[path] = string(child.data)
			}
		}
	}
	walk("/", m.root)
	return out
}
