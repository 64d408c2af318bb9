package fsx

import "golang.org/x/sys/unix"

func renameNoReplace(oldname, newname string) error {
	return unix.RenamexNp(oldname, newname, unix.RENAME_EXCL)
}

func renameExchange(a, b string) error {
	return orUnsupported(unix.RenamexNp(a, b, unix.RENAME_SWAP))
}
