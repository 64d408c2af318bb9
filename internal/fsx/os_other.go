//go:build !linux && !darwin

package fsx

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// noSpace are the errors of a full disk; the last is ERROR_DISK_FULL of Windows.
var noSpace = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.Errno(112)}

func unsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

func renameNoReplace(string, string) error { return errors.ErrUnsupported }

func renameExchange(string, string) error { return errors.ErrUnsupported }

// SyncDir implements FS. These systems order names by themselves.
func (OS) SyncDir(name string) error {
	_, err := os.Lstat(name)
	return err
}

// Lock implements FS. Windows cannot rename a directory that is open, so that
// there is none; it keeps the files that another run has open from being removed.
func (OS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Free implements FS.
func (OS) Free(string) (int64, error) { return 0, errors.ErrUnsupported }
