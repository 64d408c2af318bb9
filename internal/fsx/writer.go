package fsx

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"path/filepath"

	"gefenckpt/internal/fault"
)

// Writer writes one staged file, counting and hashing what passes. Of a file that
// an interrupted run has begun, it first goes over what is there: what is written
// is compared with it, or passed over by Replay.
type Writer struct {
	s    *Staging
	name string
	file File
	buf  *bufio.Writer
	sum  hash.Hash
	n    int64
	err  error // of a Write

	old     io.ReadCloser // what an interrupted run has left; nil if nothing, or behind it
	kept    progress      // how much that is, and its digest
	scratch []byte

	noted   int64      // bytes that the journal knows of, or that are being synced for it
	syncing chan error // of the sync under way; nil if there is none
}

// writeBuffer is how many bytes are collected before they are written.
const writeBuffer = 1 << 20

// Create begins a staged file, or goes on with it. Different files may be written
// at the same time.
func (s *Staging) Create(name string) (*Writer, error) {
	path := filepath.Join(s.dir, name)
	if filepath.Base(name) != name || name == journalName {
		return nil, fault.New(fault.Internal, "the name %q of a staged file is no plain one", name).File(s.target)
	}
	w := &Writer{s: s, name: name, sum: sha256.New()}
	var err error
	if p, ok := s.kept[name]; ok {
		if w.old, err = s.fs.Open(path); err != nil {
			return nil, failure(err, path, "what an interrupted run has written cannot be read")
		}
		w.kept, w.noted = p, p.Bytes
		w.file, err = s.fs.Append(path, p.Bytes)
	} else {
		w.file, err = s.fs.Create(path)
	}
	if err != nil {
		w.closeOld()
		return nil, failure(err, path, "the file cannot be made")
	}
	w.buf = bufio.NewWriterSize(w.file, writeBuffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[w] = true
	return w, nil
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	done := 0
	if w.n < w.kept.Bytes {
		done, w.err = w.compare(p)
	}
	if w.err == nil && done < len(p) {
		n, err := w.buf.Write(p[done:])
		w.sum.Write(p[done : done+n])
		w.n += int64(n)
		done += n
		w.err = w.failed(err, "writing")
	}
	if w.err == nil && w.n-w.noted >= w.s.syncEvery() {
		w.err = w.checkpoint()
	}
	return done, w.err
}

// compare compares p with what is there already, as far as that goes.
func (w *Writer) compare(p []byte) (int, error) {
	p = p[:min(int64(len(p)), w.kept.Bytes-w.n)]
	for from := 0; from < len(p); {
		want := p[from:min(from+writeBuffer, len(p))]
		got, err := w.read(len(want))
		if err != nil {
			return from, err
		}
		if !bytes.Equal(got, want) {
			return from, w.changed()
		}
		from += len(want)
	}
	return len(p), nil
}

// Replay passes over n bytes that an interrupted run has written, if it has
// written them all; they go to tee. If it reports false, nothing has happened and
// the bytes are to be written.
func (w *Writer) Replay(n int64, tee io.Writer) (bool, error) {
	if w.err != nil || w.n+n > w.kept.Bytes {
		return false, w.err
	}
	for n > 0 {
		got, err := w.read(int(min(n, writeBuffer)))
		if err == nil {
			_, err = tee.Write(got)
		}
		if err != nil {
			return false, err
		}
		n -= int64(len(got))
	}
	return true, nil
}

// read takes the next n bytes of what is there. At the end of it all its digest
// must be the journal's.
func (w *Writer) read(n int) ([]byte, error) {
	if w.scratch == nil {
		w.scratch = make([]byte, writeBuffer)
	}
	got := w.scratch[:n]
	if _, err := io.ReadFull(w.old, got); err != nil {
		w.err = w.failed(err, "reading what an interrupted run has written")
		return nil, w.err
	}
	w.sum.Write(got)
	w.n += int64(n)
	if w.n == w.kept.Bytes {
		w.closeOld()
		if hex.EncodeToString(w.sum.Sum(nil)) != w.kept.SHA256 {
			w.err = w.changed()
		}
	}
	return got, w.err
}

func (w *Writer) closeOld() {
	if w.old != nil {
		w.old.Close() // it was only read
		w.old, w.scratch = nil, nil
	}
}

func (w *Writer) changed() error {
	return fault.New(fault.Output, "what the interrupted run has left is not what belongs there, before byte %d", w.n).
		File(filepath.Join(w.s.dir, w.name)).WithHint("run it without --resume to begin anew")
}

// checkpoint makes what was written so far durable, beside the writing of more,
// and has it noted in the journal.
func (w *Writer) checkpoint() error {
	if err := w.settled(); err != nil {
		return err
	}
	if err := w.failed(w.buf.Flush(), "writing"); err != nil {
		return err
	}
	reached := w.progress(false)
	w.noted, w.syncing = reached.Bytes, make(chan error, 1)
	go func() { w.syncing <- w.durable(reached) }()
	return nil
}

// settled waits for the sync under way.
func (w *Writer) settled() error {
	if w.syncing == nil {
		return nil
	}
	err := <-w.syncing
	w.syncing = nil
	return err
}

// durable syncs the file and notes it in the journal.
func (w *Writer) durable(p progress) error {
	if err := w.failed(w.file.Sync(), "syncing"); err != nil {
		return err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.note(line{progress: p})
}

func (w *Writer) progress(done bool) progress {
	return progress{w.name, w.n, hex.EncodeToString(w.sum.Sum(nil)), done}
}

// Close makes the file durable, closes it and notes its digest. It is called
// once; a file that is not to be kept is left to Abort.
func (w *Writer) Close() error {
	err := w.err
	if err == nil && (w.n < w.kept.Bytes || w.kept.Done && w.n > w.kept.Bytes) {
		err = w.changed()
	}
	if err == nil {
		err = w.failed(w.buf.Flush(), "writing")
	}
	if e := w.settled(); err == nil {
		err = e
	}
	done := w.progress(true)
	if err == nil && !w.kept.Done {
		err = w.durable(done)
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	delete(w.s.open, w)
	if e := w.failed(w.end(), "closing"); err == nil {
		err = e
	}
	if err == nil {
		w.s.files = append(w.s.files, Written{done.Name, done.Bytes, done.SHA256})
	}
	return err
}

// end closes the file.
func (w *Writer) end() error {
	w.closeOld()
	return w.file.Close()
}

// suspend makes durable what is there of a file that is not whole.
func (w *Writer) suspend() error {
	err := w.err
	if e := w.settled(); err == nil {
		err = e
	}
	if err == nil && w.n > w.kept.Bytes && w.n > w.noted {
		if err = w.failed(w.buf.Flush(), "writing"); err == nil {
			err = w.durable(w.progress(false))
		}
	}
	if e := w.failed(w.end(), "closing"); err == nil {
		err = e
	}
	return err
}

func (w *Writer) failed(err error, doing string) error {
	if err == nil {
		return nil
	}
	return failure(err, filepath.Join(w.s.dir, w.name), doing)
}
