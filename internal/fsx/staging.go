package fsx

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"gefenckpt/internal/fault"
)

// Options steer a staging.
type Options struct {
	// Directory says whether the target is a directory of the staged files, or the
	// one staged file that has its name; any other is a companion, put beside it.
	Directory bool
	// Force replaces an existing target.
	Force bool
	// Bytes is how much will be written. Staging fails where the disk is known to
	// have less; 0 asks nothing.
	Bytes int64
	// Pins say which work this is.
	Pins []Pin
	// Resume takes over what an interrupted run has staged. One with other pins is
	// a Usage fault; what is no longer known to be whole is written again.
	Resume bool
	// SyncEvery is after how many bytes of a file they are made durable and noted
	// for a run that resumes; 0 is 256 MiB.
	SyncEvery int64
}

// Staging collects the files of one target in a directory beside it. Exactly one
// of Commit, Suspend and Abort ends it; Abort after any does nothing.
type Staging struct {
	fs     FS
	target string
	dir    string // where files are staged
	old    string // where a target waits that cannot be exchanged in one step
	opts   Options
	lock   io.Closer

	kept      map[string]progress // what an interrupted run has left
	keptBytes int64

	mu      sync.Mutex
	journal File
	open    map[*Writer]bool
	files   []Written
	ended   bool
}

// Written is a staged file.
type Written struct {
	Name   string
	Bytes  int64
	SHA256 string // hexadecimal
}

// What is put around the name of a target to name the directory where it is
// staged, and the place of a target that is being replaced.
const (
	stagingSuffix = ".gefenckpt-partial"
	oldSuffix     = ".gefenckpt-old"
)

// Stage begins to write target. An existing one is an Output fault without
// Force. What a run that died has left is put right: its staged files are
// removed, and a target that it was replacing is put back.
func Stage(fsys FS, target string, o Options) (*Staging, error) {
	target = filepath.Clean(target)
	parent, name := filepath.Split(target)
	if name == "" || name == "." || name == ".." {
		return nil, fault.New(fault.Output, "this is no name for a target").File(target).WithHint("name a file or a directory to be made")
	}
	s := &Staging{
		fs: fsys, target: target, opts: o, open: map[*Writer]bool{}, kept: map[string]progress{},
		dir: parent + "." + name + stagingSuffix,
		old: parent + "." + name + oldSuffix,
	}
	if err := s.checkTarget(); err != nil {
		return nil, err
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	if err := s.putBackOld(); err != nil {
		return nil, s.abort(err)
	}
	if err := s.checkSpace(); err != nil {
		return nil, s.abort(err)
	}
	return s, nil
}

// checkTarget refuses a target that is there and may not be replaced.
func (s *Staging) checkTarget() error {
	info, err := s.fs.Lstat(s.target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	refuse := func(why, hint string) error {
		return fault.New(fault.Output, "%s", why).File(s.target).WithHint("%s", hint)
	}
	const remove = "remove it, or choose another name"
	switch {
	case err != nil:
		return failure(err, s.target, "the target cannot be looked at")
	case info.Mode()&fs.ModeSymlink != 0:
		return refuse("the target is a symbolic link", "name the file that it points to, or remove the link")
	case !s.opts.Force:
		return refuse("the target exists", "choose another name, or replace it with --force")
	case info.IsDir() && !s.opts.Directory:
		return refuse("the target is a directory, where a file is to be written", remove)
	case !info.IsDir() && s.opts.Directory:
		return refuse("the target is a file, where a directory is to be written", remove)
	case info.IsDir():
		_, err := s.plainFiles(s.target)
		return err
	}
	return nil
}

// makeDir makes the staging directory, or empties that of a run that died.
func (s *Staging) makeDir() error {
	const doing = "the staging directory cannot be made"
	err := s.fs.Mkdir(s.dir)
	stale := errors.Is(err, fs.ErrExist)
	if err != nil && !stale {
		return failure(err, s.dir, doing)
	}
	if stale {
		switch info, err := s.fs.Lstat(s.dir); {
		case err != nil:
			return failure(err, s.dir, doing)
		case !info.IsDir():
			return fault.New(fault.Output, "%s: something else has its name", doing).File(s.dir).WithHint("remove it")
		}
	}
	switch s.lock, err = s.fs.Lock(s.dir); {
	case errors.Is(err, ErrLocked):
		return fault.New(fault.Output, "another run is writing it").File(s.target).WithHint("wait until that run has ended, or choose another name")
	case err != nil:
		return failure(err, s.dir, doing)
	}
	if err := s.takeUp(stale); err != nil {
		return errors.Join(err, s.lock.Close())
	}
	return nil
}

// takeUp goes on with what is in the staging directory, or begins anew.
func (s *Staging) takeUp(stale bool) error {
	if stale && s.opts.Resume {
		if resumed, err := s.resume(); resumed || err != nil {
			return err
		}
	}
	if stale {
		if err := s.empty(s.dir); err != nil {
			return err
		}
	}
	return s.beginJournal()
}

// putBackOld puts back the target that a run was replacing when it died, and
// removes it where the new one had already taken its place.
func (s *Staging) putBackOld() error {
	switch _, err := s.fs.Lstat(s.old); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return failure(err, s.old, "what a run that died has left cannot be looked at")
	}
	switch _, err := s.fs.Lstat(s.target); {
	case err == nil:
		return s.remove(s.old)
	case !errors.Is(err, fs.ErrNotExist):
		return failure(err, s.target, "the target cannot be looked at")
	}
	if err := s.fs.Rename(s.old, s.target); err != nil {
		return failure(err, s.old, "the target that a run was replacing when it died cannot be put back")
	}
	return s.checkTarget()
}

// checkSpace refuses to begin what the disk cannot hold.
func (s *Staging) checkSpace() error {
	if s.opts.Bytes == 0 {
		return nil
	}
	switch free, err := s.fs.Free(s.dir); {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return failure(err, s.dir, "the free space cannot be told")
	case free < s.opts.Bytes-s.keptBytes:
		return fault.New(fault.Resource, "it takes %d bytes, and the disk has %d left", s.opts.Bytes-s.keptBytes, free).
			File(s.target).WithHint("free some space, or write to another disk")
	}
	return nil
}

// Files are the staged files that were closed, in no order.
func (s *Staging) Files() []Written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Written(nil), s.files...)
}

// Kept is how many bytes an interrupted run has left that need not be made again.
func (s *Staging) Kept() int64 { return s.keptBytes }

// Dir is the directory where files are staged.
func (s *Staging) Dir() string { return s.dir }

func (s *Staging) syncEvery() int64 {
	if s.opts.SyncEvery > 0 {
		return s.opts.SyncEvery
	}
	return 256 << 20
}

// Suspend keeps what was staged for a run that resumes, and ends the staging.
// Nothing may be writing any more.
func (s *Staging) Suspend() error {
	var err error
	for w := range s.open {
		err = errors.Join(err, w.suspend())
	}
	s.ended = true
	return errors.Join(err, s.closeJournal(), s.lock.Close())
}

func (s *Staging) closeJournal() error {
	if s.journal == nil {
		return nil
	}
	err := errors.Join(s.journal.Sync(), s.journal.Close())
	s.journal = nil
	if err != nil {
		return failure(err, filepath.Join(s.dir, journalName), "closing the journal")
	}
	return nil
}

// Abort removes what was staged. Files that are still open are closed first.
func (s *Staging) Abort() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, w := range open { // what is in them is thrown away, whatever they say
		w.settled()
		w.end()
	}
	if s.journal != nil {
		s.journal.Close()
	}
	return errors.Join(s.remove(s.dir), s.lock.Close())
}

// abort ends the staging because of err.
func (s *Staging) abort(err error) error { return errors.Join(err, s.Abort()) }
