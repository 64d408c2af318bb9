package fsx

import (
	"io"
	"io/fs"
	"os"
)

// OS is the file system of the operating system.
type OS struct{}

var _ FS = OS{}

// Create implements FS.
func (OS) Create(name string) (File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// Open implements FS.
func (OS) Open(name string) (io.ReadCloser, error) { return os.Open(name) }

// Append implements FS.
func (OS) Append(name string, size int64) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if err = f.Truncate(size); err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Mkdir implements FS.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o777) }

// Lstat implements FS.
func (OS) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(name) }

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Rename implements FS.
func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// RenameNew implements FS. Where the system cannot refuse an existing name while
// it renames, a name that appears in between is replaced.
func (OS) RenameNew(oldname, newname string) error {
	if err := renameNoReplace(oldname, newname); !unsupported(err) {
		return linkError("rename", oldname, newname, err)
	}
	if _, err := os.Lstat(newname); err == nil {
		return linkError("rename", oldname, newname, fs.ErrExist)
	}
	return os.Rename(oldname, newname)
}

// Exchange implements FS.
func (OS) Exchange(a, b string) error {
	return linkError("exchange", a, b, renameExchange(a, b))
}

// linkError places an error of a system call on two names.
func linkError(op, oldname, newname string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: oldname, New: newname, Err: err}
}
