package fsx

import (
	"errors"
	"io/fs"
	"path/filepath"

	"gefenckpt/internal/fault"
)

// RemoveTree removes a directory with all that is in it. It follows no links.
func RemoveTree(fsys FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return failure(err, dir, "the directory cannot be listed")
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if err := RemoveTree(fsys, path); err != nil {
				return err
			}
		} else if err := fsys.Remove(path); err != nil {
			return failure(err, path, "it cannot be removed")
		}
	}
	if err := fsys.Remove(dir); err != nil {
		return failure(err, dir, "it cannot be removed")
	}
	return nil
}

// plainFiles are the names in a directory that holds files alone. One that holds
// a directory is no checkpoint and nothing that was staged: it is refused, so
// that a wrong name and --force cannot cost a tree of someone's files.
func (s *Staging) plainFiles(dir string) ([]string, error) {
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return nil, failure(err, dir, "the directory cannot be listed")
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		if e.IsDir() {
			return nil, fault.New(fault.Output, "the directory is to be replaced, but holds another one, %q, as no checkpoint does", e.Name()).
				File(dir).WithHint("remove it, or choose another name")
		}
		names[i] = e.Name()
	}
	return names, nil
}

// empty removes the files of a directory that holds nothing else.
func (s *Staging) empty(dir string) error {
	names, err := s.plainFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := s.fs.Remove(path); err != nil {
			return failure(err, path, "the file cannot be removed")
		}
	}
	return nil
}

// remove removes a file, or a directory of files; what is not there is no error.
func (s *Staging) remove(path string) error {
	info, err := s.fs.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() {
		if err := s.empty(path); err != nil {
			return err
		}
	}
	if err == nil {
		err = s.fs.Remove(path)
	}
	if err != nil {
		return failure(err, path, "it cannot be removed")
	}
	return nil
}
