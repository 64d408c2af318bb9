package fsx

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"path/filepath"
	"sync"

	"gefenckpt/internal/fault"
)

// Options steer a staging.
type Options struct {
	// Directory says whether the target is a directory of the staged files, or the
	// one staged file.
	Directory bool
	// Force replaces an existing target.
	Force bool
}

// Staging collects the files of one target in a directory beside it.
//
// A target that is a file may have companions: staged files whose names begin
// with the target's own and are put beside it, before it. A crash in between
// leaves companions without the target, or beside the old one; they name the
// target's digest, so that they cannot be taken for another's.
type Staging struct {
	fs     FS
	target string
	dir    string
	opts   Options

	mu    sync.Mutex
	files []Written
}

// Written is a staged file.
type Written struct {
	Name   string
	Bytes  int64
	SHA256 string // hexadecimal
}

// stagingSuffix names the staging directory of a target.
const stagingSuffix = ".gefenckpt-partial"

// oldSuffix names a target that is being replaced.
const oldSuffix = ".gefenckpt-old"

// Stage begins to write target. An existing one is an Output fault without
// Force; a staging directory left by a run that died is removed.
func Stage(fsys FS, target string, o Options) (*Staging, error) {
	target = filepath.Clean(target)
	s := &Staging{fs: fsys, target: target, dir: target + stagingSuffix, opts: o}
	info, err := fsys.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, failure(err, target, "the target cannot be looked at")
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fault.New(fault.Output, "the target is a symbolic link").File(target).WithHint("name the file that it points to, or remove the link")
	case !o.Force:
		return nil, fault.New(fault.Output, "the target exists").File(target).WithHint("choose another name, or replace it with --force")
	case info.IsDir() != o.Directory:
		return nil, fault.New(fault.Output, "the target exists and is of another kind: a directory where a file is to be written, or a file where a directory is").
			File(target).WithHint("remove it, or choose another name")
	}
	if _, err := fsys.Lstat(filepath.Dir(target)); err != nil {
		return nil, failure(err, filepath.Dir(target), "the folder of the target").(*fault.Error).WithHint("make the folder first")
	}
	if err := fsys.RemoveAll(s.dir); err != nil {
		return nil, failure(err, s.dir, "what an earlier run left cannot be removed")
	}
	if err := fsys.Mkdir(s.dir); err != nil {
		return nil, failure(err, s.dir, "the staging directory cannot be made")
	}
	return s, nil
}

// Writer writes one staged file. Close syncs it.
type Writer struct {
	s    *Staging
	name string
	file File
	buf  *bufio.Writer
	sum  hash.Hash
	n    int64
	err  error
}

// writeBuffer is how many bytes are collected before they are written.
const writeBuffer = 1 << 20

// Create begins a staged file. Different files may be written at the same time.
func (s *Staging) Create(name string) (*Writer, error) {
	path := filepath.Join(s.dir, name)
	f, err := s.fs.Create(path)
	if err != nil {
		return nil, failure(err, path, "a file cannot be made")
	}
	return &Writer{s: s, name: name, file: f, buf: bufio.NewWriterSize(f, writeBuffer), sum: sha256.New()}, nil
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.buf.Write(p)
	w.sum.Write(p[:n])
	w.n += int64(n)
	if err != nil {
		w.err = failure(err, filepath.Join(w.s.dir, w.name), "writing")
		return n, w.err
	}
	return n, nil
}

// Close makes the file durable and notes its digest.
func (w *Writer) Close() error {
	path := filepath.Join(w.s.dir, w.name)
	err := w.err
	for _, step := range []struct {
		doing string
		do    func() error
	}{{"writing", w.buf.Flush}, {"syncing", w.file.Sync}} {
		if err == nil {
			if e := step.do(); e != nil {
				err = failure(e, path, step.doing)
			}
		}
	}
	if e := w.file.Close(); e != nil && err == nil {
		err = failure(e, path, "closing")
	}
	if err != nil {
		return err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.files = append(w.s.files, Written{w.name, w.n, hex.EncodeToString(w.sum.Sum(nil))})
	return nil
}

// Files are the staged files that were closed, in no order.
func (s *Staging) Files() []Written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Written(nil), s.files...)
}

// Commit puts the staged files in place. Of an existing target the old one stays
// until the new one is there; after an error the target is as it was, or whole.
func (s *Staging) Commit() error {
	if err := s.fs.SyncDir(s.dir); err != nil {
		return s.abort(failure(err, s.dir, "syncing the staging directory"))
	}
	commit := s.commitFile
	if s.opts.Directory {
		commit = s.commitDirectory
	}
	if err := commit(); err != nil {
		return s.abort(err)
	}
	if err := s.fs.SyncDir(filepath.Dir(s.target)); err != nil {
		return failure(err, filepath.Dir(s.target), "the target is in place, but its folder cannot be synced")
	}
	return nil
}

// commitDirectory renames the staging directory to the target.
func (s *Staging) commitDirectory() error {
	old := s.target + oldSuffix
	replacing := false
	if s.opts.Force {
		if err := s.fs.RemoveAll(old); err != nil {
			return failure(err, old, "what an earlier run left cannot be removed")
		}
		switch err := s.fs.Rename(s.target, old); {
		case err == nil:
			replacing = true
		case !errors.Is(err, fs.ErrNotExist):
			return failure(err, s.target, "the old target cannot be moved aside")
		}
	}
	if err := s.fs.Rename(s.dir, s.target); err != nil {
		err = failure(err, s.target, "the new target cannot be renamed into place")
		if replacing {
			if e := s.fs.Rename(old, s.target); e != nil {
				return fault.Of(err).WithHint("the old target is at %s", old)
			}
		}
		return err
	}
	if replacing {
		if err := s.fs.RemoveAll(old); err != nil {
			return failure(err, old, "the new target is in place, but the old one cannot be removed")
		}
	}
	return nil
}

// commitFile renames the companions into place, and the target last.
func (s *Staging) commitFile() error {
	name := filepath.Base(s.target)
	for _, f := range s.Files() {
		if f.Name != name {
			if err := s.fs.Rename(filepath.Join(s.dir, f.Name), filepath.Join(filepath.Dir(s.target), f.Name)); err != nil {
				return failure(err, s.target, "a file cannot be renamed into place")
			}
		}
	}
	if err := s.fs.Rename(filepath.Join(s.dir, name), s.target); err != nil {
		return failure(err, s.target, "the new target cannot be renamed into place")
	}
	if err := s.fs.RemoveAll(s.dir); err != nil {
		return failure(err, s.dir, "the target is in place, but the staging directory cannot be removed")
	}
	return nil
}

// Abort removes what was staged.
func (s *Staging) Abort() error {
	if err := s.fs.RemoveAll(s.dir); err != nil {
		return failure(err, s.dir, "the staging directory cannot be removed")
	}
	return nil
}

func (s *Staging) abort(err error) error {
	return errors.Join(err, s.Abort())
}
