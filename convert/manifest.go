package convert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"

	"golang.org/x/sync/errgroup"
)

// Manifest lies beside what was written and says where it came from, what became
// of it, and how to tell that it is whole. It depends on the source's bytes, the
// options and the tool's version alone.
type Manifest struct {
	Schema  int            `json:"schema"`
	Tool    string         `json:"tool"`
	Source  ManifestSource `json:"source"`
	Options ManifestOption `json:"options"`
	Result  *Result        `json:"result"`
	Files   []File         `json:"files"`
}

// ManifestSource is the source with the digest of each of its files.
type ManifestSource struct {
	End
	Files []File `json:"files"`
}

// ManifestOption are the options that shaped the output.
type ManifestOption struct {
	To        string   `json:"to"`
	World     int      `json:"world,omitempty"`
	Key       string   `json:"key,omitempty"`
	Layout    string   `json:"layout,omitempty"`
	Container string   `json:"container"`
	Fidelity  Fidelity `json:"fidelity,omitempty"`
	MaxGrowth float64  `json:"max_growth,omitempty"`
}

// sourceFiles are the files of the source, by name and size, sorted.
func (j *job) sourceFiles() ([]File, error) {
	info, err := os.Stat(j.source.Path)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err).File(j.source.Path)
	}
	if !info.IsDir() {
		return []File{{Name: filepath.Base(j.source.Path), Bytes: info.Size()}}, nil
	}
	entries, err := os.ReadDir(j.source.Path)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err).File(j.source.Path)
	}
	var out []File
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().Type()&^fs.ModeSymlink == 0 && !slices.Contains(j.source.Unread, e.Name()) {
			out = append(out, File{Name: e.Name(), Bytes: info.Size()})
		}
	}
	return out, nil
}

// digestSources computes the digests of the source's files beside the writing;
// they are there once the group is done.
func (j *job) digestSources(ctx context.Context, group *errgroup.Group) ([]File, error) {
	files, err := j.sourceFiles()
	if err != nil {
		return nil, err
	}
	for i := range files {
		path := j.source.Path
		if len(files) > 1 || filepath.Base(path) != files[i].Name {
			path = filepath.Join(path, files[i].Name)
		}
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

func written(files []fsx.Written) []File {
	out := make([]File, len(files))
	for i, f := range files {
		out[i] = File{f.Name, f.Bytes, f.SHA256}
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (j *job) writeManifest(staging *fsx.Staging, sources []File, directory bool) error {
	source := j.result.Source
	source.Path = filepath.Base(source.Path)
	result := *j.result
	result.Source, result.Target.Path, result.Files, result.Next = source, filepath.Base(j.dst), nil, ""
	m := Manifest{
		Schema: 1, Tool: j.o.Tool, Source: ManifestSource{source, sources}, Result: &result, Files: j.result.Files,
		Options: ManifestOption{To: string(j.o.To), World: j.o.World, Key: j.o.Key, Layout: string(j.o.Layout),
			Container: string(j.o.Container), Fidelity: j.o.Fidelity, MaxGrowth: j.o.MaxGrowth},
	}
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fault.New(fault.Internal, "the manifest cannot be encoded: %w", err)
	}
	w, err := staging.Create(j.manifestFile(directory))
	if err != nil {
		return err
	}
	if _, err := w.Write(append(data, '\n')); err != nil {
		w.Close()
		return err
	}
	return w.Close()
}
