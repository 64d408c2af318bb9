package fsx

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"gefenckpt/internal/fault"
)

// causes are what stops an output, each with what can be done.
var causes = []struct {
	any  []error
	kind fault.Kind
	hint string
}{
	{noSpace, fault.Resource, "free some space, or write to another disk"},
	{[]error{syscall.EMFILE, syscall.ENFILE}, fault.Resource, "raise the limit of open files, or use fewer --jobs"},
	{[]error{syscall.EFBIG}, fault.Output, "this file system has no files of that size: write to another"},
	{[]error{syscall.ENAMETOOLONG}, fault.Output, "choose a shorter name"},
	{[]error{fs.ErrPermission, syscall.EROFS}, fault.Output, "write to a folder that you may write to"},
	{[]error{fs.ErrNotExist}, fault.Output, "make the folder first, and leave it alone while it is written to"},
	{[]error{errors.ErrUnsupported, syscall.EXDEV}, fault.Output, "this file system cannot rename: write to a local disk, and copy the result"},
}

// failure is the fault of an operation on the output. The operation's own text
// of what it was done to is left out: path says it.
func failure(err error, path, doing string) *fault.Error {
	kind, hint := fault.Output, "check the disk and try again"
causes:
	for _, c := range causes {
		for _, target := range c.any {
			if errors.Is(err, target) {
				kind, hint = c.kind, c.hint
				break causes
			}
		}
	}
	return fault.New(kind, "%s: %w", doing, bare(err)).File(path).WithHint("%s", hint)
}

// bare is an error without the names that os puts around it.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
