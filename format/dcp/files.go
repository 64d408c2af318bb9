package dcp

import (
	"errors"
	"io"
	"io/fs"
	"strings"

	"gefenckpt/internal/fault"
)

// file is an open file of a directory.
type file interface {
	io.ReaderAt
	io.Closer
}

// mostFiles is how many files stay open beside those in use.
const mostFiles = 64

// stat looks up a file that the metadata names. It must be a regular file inside
// the directory: a path that leads elsewhere is refused, by name or by symbolic
// link (which fs.FS of an os.Root does not follow outside).
func stat(fsys fs.FS, name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
		return nil, fault.New(fault.Corrupt, "the metadata names the file %q, which does not lie in the directory", name)
	}
	info, err := fs.Stat(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if link, lerr := fs.Lstat(fsys, name); lerr == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, fault.New(fault.Incomplete, "the file is a symbolic link to nothing")
		}
		return nil, fault.New(fault.Incomplete, "the file is missing").
			WithHint("copy it from where the checkpoint was saved")
	case err != nil:
		if link, lerr := fs.Lstat(fsys, name); lerr == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, fault.New(fault.Unsupported, "the file is a symbolic link out of the directory").
				WithHint("make a copy of the directory with its links followed (cp -rL)")
		}
		return nil, fault.New(fault.Resource, "the file cannot be looked at: %w", err)
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.Corrupt, "it is no regular file")
	}
	return info, nil
}

// openFile opens a file for reading at offsets.
func openFile(fsys fs.FS, name string, size int64) (file, error) {
	info, err := stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if info.Size() != size {
		return nil, fault.New(fault.Corrupt, "the file has %d bytes now and had %d when the directory was opened", info.Size(), size)
	}
	opened, err := fsys.Open(name)
	if err != nil {
		return nil, fault.New(fault.Resource, "the file cannot be opened: %w", err)
	}
	f, ok := opened.(file)
	if !ok {
		opened.Close()
		return nil, fault.New(fault.Internal, "the file system gives files that cannot be read at an offset")
	}
	return f, nil
}

// section is a range of a file of a directory, opened when it is read.
type section struct {
	d              *Directory
	file           int32 // index into Metadata.Files
	offset, length int64
}

// Size is the length of the section in bytes.
func (s *section) Size() int64 { return s.length }

// ReadAt reads from the section.
func (s *section) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off >= s.length {
		return 0, io.EOF
	}
	short := int64(len(p)) > s.length-off
	if short {
		p = p[:s.length-off]
	}
	err = s.d.files.use(s.file, func(f file) error {
		var err error
		n, err = f.ReadAt(p, s.offset+off)
		if n == len(p) {
			return nil
		}
		if err == io.EOF {
			return fault.New(fault.Incomplete, "the file ends at byte %d, and the item goes to byte %d",
				s.offset+off+int64(n), s.offset+s.length)
		}
		return fault.New(fault.Resource, "reading failed: %w", err).At(s.offset + off + int64(n))
	})
	if err != nil {
		return n, fault.Within(err, s.d.place(s.file), "")
	}
	if short {
		err = io.EOF
	}
	return n, err
}
