// Package fsx writes outputs that appear whole or not at all: into a staging
// directory beside the target, synced, and renamed into place last.
//
// [Stage] begins an output, [Staging.Create] makes its files and
// [Staging.Commit] puts them in place; the comment of Commit says what a crash
// at any moment leaves. A staging that was cut short, by a crash or by
// [Staging.Suspend], can be taken up again by a run that is pinned to be the same. Errors are faults: Output where the target exists or
// cannot be committed, Resource where the disk is full.
package fsx

import (
	"errors"
	"io"
	"io/fs"
)

// FS is what the commit protocol needs of a file system. Names are paths as the
// operating system writes them.
type FS interface {
	// Create makes a new file; it fails where the name exists, links included.
	Create(name string) (File, error)
	// Open reads a file from its beginning.
	Open(name string) (io.ReadCloser, error)
	// Append writes a file on behind its first size bytes, which it has; the rest
	// is cut off.
	Append(name string, size int64) (File, error)
	// Mkdir makes one directory; it fails where the name exists.
	Mkdir(name string) error
	// Lstat does not follow a link at name itself.
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// Rename moves oldname to newname and replaces a file there.
	Rename(oldname, newname string) error
	// RenameNew moves oldname to newname; it fails with fs.ErrExist where the
	// name exists.
	RenameNew(oldname, newname string) error
	// Exchange swaps two names in one step. The error is errors.ErrUnsupported
	// where the file system cannot.
	Exchange(a, b string) error
	// Remove removes a file, a link or an empty directory.
	Remove(name string) error
	// SyncDir makes the names in a directory durable. That a file system has no
	// such operation is no error.
	SyncDir(name string) error
	// Lock keeps other processes out of a directory until Close or the end of
	// the process. The error is ErrLocked where another holds it. File systems
	// without locks grant it to everyone.
	Lock(name string) (io.Closer, error)
	// Free is how many bytes can be written below a directory. The error is
	// errors.ErrUnsupported where that cannot be told.
	Free(name string) (int64, error)
}

// File is a file being written.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// ErrLocked says that another process holds the lock of a directory.
var ErrLocked = errors.New("another process is working in it")
