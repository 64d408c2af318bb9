// Package fsx writes outputs that appear whole or not at all: into a staging
// directory beside the target, synced, and renamed into place last.
package fsx

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"gefenckpt/internal/fault"
)

// FS is what the commit protocol needs of a file system.
type FS interface {
	// Create makes a new file; it fails where the name exists, links included.
	Create(name string) (File, error)
	Mkdir(name string) error
	// Lstat does not follow a link at name itself.
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	// Rename moves oldname to newname, replacing a file there.
	Rename(oldname, newname string) error
	RemoveAll(name string) error
	// SyncDir makes the names in a directory durable. File systems that cannot
	// are no error.
	SyncDir(name string) error
}

// File is a file being written.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// OS is the file system of the operating system.
type OS struct{}

// Create implements FS.
func (OS) Create(name string) (File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// Mkdir implements FS.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o777) }

// Lstat implements FS.
func (OS) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(name) }

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Rename implements FS.
func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// RemoveAll implements FS.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	for _, unable := range []error{syscall.EINVAL, syscall.ENOTSUP, fs.ErrPermission} {
		if errors.Is(err, unable) {
			return nil
		}
	}
	return err
}

// failure is the fault of an operation on the output.
func failure(err error, path, doing string) error {
	kind, hint := fault.Output, "check that the folder can be written to"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind, hint = fault.Resource, "free some space, or write to another disk"
	}
	return fault.New(kind, "%s: %w", doing, err).File(path).WithHint("%s", hint)
}
