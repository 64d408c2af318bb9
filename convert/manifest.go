package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gefenckpt/format/manifest"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"

	"golang.org/x/sync/errgroup"
)

// sourceFiles are the files of the source, by name and size, sorted.
func (j *job) sourceFiles() ([]manifest.File, error) {
	info, err := os.Stat(j.source.Path)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err).File(j.source.Path)
	}
	if !info.IsDir() {
		return []manifest.File{{Name: filepath.Base(j.source.Path), Bytes: info.Size()}}, nil
	}
	entries, err := os.ReadDir(j.source.Path)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err).File(j.source.Path)
	}
	var out []manifest.File
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().Type()&^fs.ModeSymlink == 0 && !slices.Contains(j.source.Unread, e.Name()) {
			out = append(out, manifest.File{Name: e.Name(), Bytes: info.Size()})
		}
	}
	return out, nil
}

// sourcePath is the path of one of the source's n files.
func (j *job) sourcePath(name string, n int) string {
	if n == 1 && filepath.Base(j.source.Path) == name {
		return j.source.Path
	}
	return filepath.Join(j.source.Path, name)
}

// digestSources computes the digests of the source's files beside the writing;
// they are there once the group is done.
func (j *job) digestSources(ctx context.Context, group *errgroup.Group) ([]manifest.File, error) {
	files, err := j.sourceFiles()
	if err != nil {
		return nil, err
	}
	for i := range files {
		path := j.sourcePath(files[i].Name, len(files))
		group.Go(func() error {
			var err error
			files[i].SHA256, err = digest(ctx, path)
			return err
		})
	}
	return files, nil
}

func digest(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fault.New(fault.Resource, "%w", err).File(path)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyBuffer(&metered{ctx, sum, func(int) {}}, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return "", fault.New(fault.Resource, "reading: %w", err).File(path)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func written(files []fsx.Written) []manifest.File {
	out := make([]manifest.File, len(files))
	for i, f := range files {
		out[i] = manifest.File{Name: f.Name, Bytes: f.Bytes, SHA256: f.SHA256}
	}
	slices.SortFunc(out, func(a, b manifest.File) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// writeManifest stages the manifest beside the files.
func (j *job) writeManifest(staging *fsx.Staging, sources []manifest.File, directory bool) error {
	result := j.result.Result
	result.Source.Path, result.Target.Path = filepath.Base(result.Source.Path), filepath.Base(j.dst)
	m := manifest.Manifest{
		Schema: manifest.Schema, Tool: j.o.Tool, Source: manifest.Source{End: result.Source, Files: sources}, Result: result, Files: j.result.Files,
		Options: manifest.Options{To: string(j.o.To), World: j.o.World, Key: j.o.Key, Layout: string(j.o.Layout),
			Container: string(j.o.Container), Fidelity: string(j.o.Fidelity), MaxGrowth: j.o.MaxGrowth},
	}
	data, err := m.Encode()
	if err != nil {
		return err
	}
	w, err := staging.Create(filepath.Base(manifest.For(j.dst, directory)))
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Close()
}
