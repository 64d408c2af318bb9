//go:build linux || darwin

package fsx

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// noSpace are the errors of a full disk.
var noSpace = []error{unix.ENOSPC, unix.EDQUOT}

// unsupported says whether a system call failed because the kernel or the file
// system does not know it.
func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EINVAL)
}

func orUnsupported(err error) error {
	if unsupported(err) {
		return errors.ErrUnsupported
	}
	return err
}

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !unsupported(err) {
		return err
	}
	return nil
}

// Lock implements FS, with flock on the directory itself.
func (OS) Lock(name string) (io.Closer, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		d.Close()
		return nil, ErrLocked
	case err != nil: // no locks here, as on some network file systems
		return d, nil
	}
	// Whoever held it before may have renamed or removed the directory since it
	// was opened.
	held, err := d.Stat()
	if err == nil {
		if named, e := os.Lstat(name); e != nil || !os.SameFile(held, named) {
			err = ErrLocked
		}
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Free implements FS.
func (OS) Free(name string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(name, &s); err != nil {
		return 0, err
	}
	return int64(min(s.Bavail, 1<<62/uint64(max(s.Bsize, 1)))) * int64(s.Bsize), nil
}
