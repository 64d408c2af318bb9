package fsx

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gefenckpt/internal/fault"
)

// Commit puts the staged files in place, durably, and ends the staging. After an
// error the target is what it was before, unless the error says that the new one
// is in place.
//
// After a crash at any moment the target is what it was before, or the new one,
// whole:
//
//   - A directory is renamed to the target once its files and its names are
//     synced. An existing target is exchanged with it in the same step and removed
//     when the exchange is durable. Where the file system cannot exchange, the old
//     target is moved aside first; after a crash right then it has its name again
//     when the next run for the same target begins.
//   - A file is renamed to the target, replacing an old one. Its companions say
//     what it is, and a crash never leaves one beside another's file: the old
//     companions are moved away before the target is renamed, the new ones follow
//     it, and each of the three steps is durable before the next. Between them the
//     target stands without companions.
func (s *Staging) Commit() error {
	placed, err := s.commit()
	if !placed {
		return s.abort(err)
	}
	s.ended = true
	return errors.Join(err, s.lock.Close())
}

// commit also says whether the new target is in place.
func (s *Staging) commit() (placed bool, err error) {
	if len(s.open) > 0 {
		return false, fault.New(fault.Internal, "%d staged files are still open", len(s.open)).File(s.target)
	}
	if err := s.dropJournal(); err != nil {
		return false, err
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return false, failure(err, s.dir, "the staging directory cannot be synced")
	}
	if s.opts.Directory {
		return s.commitDirectory()
	}
	return s.commitFile()
}

func (s *Staging) commitDirectory() (placed bool, err error) {
	old := "" // where a replaced target is
	err = s.fs.RenameNew(s.dir, s.target)
	if errors.Is(err, fs.ErrExist) && s.opts.Force {
		old, err = s.exchange()
	}
	if err != nil {
		return false, s.unplaced(err)
	}
	if err := s.fs.SyncDir(filepath.Dir(s.target)); err != nil {
		return true, s.unsynced(err, old)
	}
	if old == "" {
		return true, nil
	}
	return true, s.leftOver(s.remove(old))
}

// exchange puts the staging directory in the place of the target, and says where
// the old target is now.
func (s *Staging) exchange() (old string, err error) {
	err = s.fs.Exchange(s.dir, s.target)
	if !errors.Is(err, errors.ErrUnsupported) {
		return s.dir, err
	}
	if err := s.fs.Rename(s.target, s.old); err != nil {
		return "", err
	}
	if err := s.fs.Rename(s.dir, s.target); err != nil {
		if s.fs.Rename(s.old, s.target) != nil {
			return "", s.unplaced(err).WithHint("the old one is at %s", s.old)
		}
		return "", err
	}
	return s.old, nil
}

func (s *Staging) commitFile() (placed bool, err error) {
	parent, name := filepath.Split(s.target)
	parent = filepath.Clean(parent)
	var companions []string
	for _, f := range s.files {
		if f.Name != name {
			companions = append(companions, f.Name)
		}
	}
	if len(companions) == len(s.files) {
		return false, fault.New(fault.Internal, "the file itself was not staged").File(s.target)
	}
	slices.SortFunc(companions, strings.Compare)

	aside, err := s.setAside(parent, companions)
	if err == nil {
		err = s.place(filepath.Join(s.dir, name))
	}
	if err != nil {
		for _, c := range aside { // the old target has lost them if this fails too
			err = errors.Join(err, s.fs.Rename(filepath.Join(s.dir, c+oldSuffix), filepath.Join(parent, c)))
		}
		return false, err
	}
	err = s.follow(parent, companions)
	if e := s.remove(s.dir); err == nil {
		err = s.leftOver(e)
	}
	return true, err
}

// setAside moves the old companions into the staging directory, durably, and
// says which there were.
func (s *Staging) setAside(parent string, companions []string) (aside []string, err error) {
	for _, c := range companions {
		path := filepath.Join(parent, c)
		switch err := s.fs.Rename(path, filepath.Join(s.dir, c+oldSuffix)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return aside, failure(err, path, "it cannot be moved aside")
		default:
			aside = append(aside, c)
		}
	}
	if len(aside) == 0 {
		return nil, nil
	}
	for _, dir := range []string{s.dir, parent} {
		if err := s.fs.SyncDir(dir); err != nil {
			return aside, failure(err, dir, "the directory cannot be synced")
		}
	}
	return aside, nil
}

// place renames a staged file to the target.
func (s *Staging) place(staged string) error {
	err := s.fs.RenameNew(staged, s.target)
	if errors.Is(err, fs.ErrExist) && s.opts.Force {
		err = s.fs.Rename(staged, s.target)
	}
	if err != nil {
		return s.unplaced(err)
	}
	return nil
}

// follow puts the companions beside the target.
func (s *Staging) follow(parent string, companions []string) error {
	if err := s.fs.SyncDir(parent); err != nil {
		return s.unsynced(err, "")
	}
	for _, c := range companions {
		path := filepath.Join(parent, c)
		if err := s.fs.Rename(filepath.Join(s.dir, c), path); err != nil {
			return failure(err, path, "the target is in place, but this file beside it is not")
		}
	}
	if len(companions) == 0 {
		return nil
	}
	if err := s.fs.SyncDir(parent); err != nil {
		return s.unsynced(err, "")
	}
	return nil
}

// unplaced is the fault of a new target that could not take its place.
func (s *Staging) unplaced(err error) *fault.Error {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return f
	}
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Output, "the target has appeared while it was being written").File(s.target).
			WithHint("choose another name, or replace it with --force")
	}
	return failure(err, s.target, "the new target cannot be renamed into place")
}

// unsynced is the fault of a new target that is in place but could be gone after
// a power cut. The old one, where it is still there, is kept for that.
func (s *Staging) unsynced(err error, old string) error {
	f := failure(err, filepath.Dir(s.target), "the target is in place, but the folder cannot be synced")
	if old != "" {
		return f.WithHint("check the disk; the old target is at %s", old)
	}
	return f
}

// leftOver is the fault of what could not be removed after the target was placed.
func (s *Staging) leftOver(err error) error {
	if err == nil {
		return nil
	}
	f := fault.Of(err)
	return fault.New(f.Kind, "the target is in place, but this is left over: %s", f.Message).File(f.Path).WithHint("remove it")
}
