package fsx

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"path/filepath"

	"gefenckpt/internal/fault"
)

// Writer writes one staged file, counting and hashing what passes.
type Writer struct {
	s    *Staging
	name string
	file File
	buf  *bufio.Writer
	sum  hash.Hash
	n    int64
	err  error // of a Write
}

// writeBuffer is how many bytes are collected before they are written.
const writeBuffer = 1 << 20

// Create begins a staged file. Different files may be written at the same time.
func (s *Staging) Create(name string) (*Writer, error) {
	path := filepath.Join(s.dir, name)
	if filepath.Base(name) != name {
		return nil, fault.New(fault.Internal, "the name %q of a staged file is no plain one", name).File(s.target)
	}
	f, err := s.fs.Create(path)
	if err != nil {
		return nil, failure(err, path, "the file cannot be made")
	}
	w := &Writer{s: s, name: name, file: f, buf: bufio.NewWriterSize(f, writeBuffer), sum: sha256.New()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[w] = true
	return w, nil
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.buf.Write(p)
	w.sum.Write(p[:n])
	w.n += int64(n)
	if err != nil {
		w.err = w.failed(err, "writing")
		return n, w.err
	}
	return n, nil
}

// Close makes the file durable, closes it and notes its digest. It is called
// once; a file that is not to be kept is left to Abort.
func (w *Writer) Close() error {
	err := w.err
	if err == nil {
		err = w.failed(w.buf.Flush(), "writing")
	}
	if err == nil {
		err = w.failed(w.file.Sync(), "syncing")
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.open, w)
	if e := w.failed(w.file.Close(), "closing"); err == nil {
		err = e
	}
	if err == nil {
		w.s.files = append(w.s.files, Written{w.name, w.n, hex.EncodeToString(w.sum.Sum(nil))})
	}
	return err
}

func (w *Writer) failed(err error, doing string) error {
	if err == nil {
		return nil
	}
	return failure(err, filepath.Join(w.s.dir, w.name), doing)
}
