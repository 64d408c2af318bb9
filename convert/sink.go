package convert

import (
	"context"
	"io"
	"path/filepath"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/dcp"
	"gefenckpt/format/pickle"
	"gefenckpt/format/torchfile"
	"gefenckpt/format/tree"
)

// sink is a target that is laid out: its files are known by name and size and
// can be written in any order, but for the last, which makes the target whole.
type sink interface {
	files() []sinkFile
	dropped() []string
}

// sinkFile is one file of a target.
type sinkFile struct {
	name  string
	bytes int64
	write func(io.Writer) error
}

func newSink(root pickle.Value, dst string, o Options) (sink, error) {
	if o.Container == checkpoint.TorchFile {
		// What comes from a directory is read by now, but for what is carried over.
		root, err := tree.Force(root)
		if err != nil {
			return nil, err
		}
		f, err := torchfile.New(root, torchfile.WriteOptions{})
		if err != nil {
			return nil, err
		}
		return &torchSink{f, filepath.Base(dst)}, nil
	}
	w, err := dcp.NewWriter(root, dcp.WriteOptions{})
	if err != nil {
		return nil, err
	}
	return &directorySink{w}, nil
}

// torchSink is one torch.save file.
type torchSink struct {
	file *torchfile.File
	name string
}

func (s *torchSink) files() []sinkFile {
	return []sinkFile{{s.name, s.file.Size(), func(w io.Writer) error { _, err := s.file.WriteTo(w); return err }}}
}

func (s *torchSink) dropped() []string { return nil }

// directorySink is a DCP directory; .metadata is its last file.
type directorySink struct{ writer *dcp.Writer }

func (s *directorySink) files() []sinkFile {
	var out []sinkFile
	for i, f := range s.writer.Files() {
		out = append(out, sinkFile{f.Name, f.Size, func(w io.Writer) error { return s.writer.WriteFile(i, w) }})
	}
	return append(out, sinkFile{".metadata", s.writer.MetadataSize(), s.writer.WriteMetadata})
}

func (s *directorySink) dropped() []string { return s.writer.Dropped }

// metered tells how many bytes pass, and stops when the context ends.
type metered struct {
	ctx  context.Context
	w    io.Writer
	pass func(n int)
}

// Replay implements torchfile.Replayer.
func (m *metered) Replay(n int64, tee io.Writer) (bool, error) {
	r, ok := m.w.(torchfile.Replayer)
	if !ok {
		return false, nil
	}
	return r.Replay(n, &metered{m.ctx, tee, m.pass})
}

func (m *metered) Write(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.w.Write(p)
	m.pass(n)
	return n, err
}
