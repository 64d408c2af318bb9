package format

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/tensor"
	"gefenckpt/internal/fault"
)

// suffixes are those of torch.save files.
var suffixes = []string{".pt", ".pth", ".bin"}

// torchFiles are the torch.save files of a directory that is no DCP directory, as
// the Transformers Trainer and rank-wise savers leave them; none for a DCP one.
func torchFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err)
	}
	var files []string
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name(), ".metadata") || strings.HasSuffix(e.Name(), ".distcp"):
			return nil, nil
		case !e.IsDir() && slices.Contains(suffixes, strings.ToLower(filepath.Ext(e.Name()))):
			files = append(files, e.Name())
		}
	}
	return files, nil
}

// openFiles opens the one optimizer among the files of a directory. Several files
// may hold it, one saved by each rank, if their payloads are equal.
func openFiles(dir string, files []string, o Options) (*checkpoint.Checkpoint, error) {
	var found *checkpoint.Checkpoint
	var err error
	var others []string
	for _, name := range files {
		c, e := Open(filepath.Join(dir, name), o)
		switch {
		case c == nil && fault.KindOf(e) == fault.Unsupported:
			others = append(others, name)
		case c == nil:
			return nil, errors.Join(e, closeIf(found))
		case found == nil:
			found, err = c, e
		default:
			found.Faults = append(found.Faults, c.Faults...)
			if e := sameState(found, c); e != nil {
				found.Faults = append(found.Faults, e)
			}
			if e := c.Close(); e != nil {
				return nil, errors.Join(e, found.Close())
			}
		}
	}
	if found == nil {
		return nil, fault.New(fault.Unsupported, "none of the %d torch.save files here holds an optimizer of Gefen: %s", len(files), strings.Join(files, ", ")).
			File(dir).WithHint("give the file that does, or a DCP directory")
	}
	for _, name := range others {
		found.Warn(name, "the file holds no optimizer of Gefen and is left where it is")
	}
	if err == nil && len(found.Faults) > 0 {
		err = found.Faults[0]
	}
	return found, err
}

func closeIf(c *checkpoint.Checkpoint) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// sameState says whether two files of one save hold the same payloads.
func sameState(a, b *checkpoint.Checkpoint) *fault.Error {
	differ := fault.New(fault.Corrupt, "it holds another state than %s: every rank's file should hold the payloads of all ranks", filepath.Base(a.Path)).
		File(b.Path).WithHint("the files are of different saves: keep those of one")
	if a.Form != b.Form || len(a.Ranks) != len(b.Ranks) || a.GlobalStep != b.GlobalStep {
		return differ
	}
	for r := range a.Ranks {
		if a.Ranks[r].Payload == nil || b.Ranks[r].Payload == nil {
			return fault.New(fault.Unsupported, "%s and this file both hold an optimizer", filepath.Base(a.Path)).
				File(b.Path).WithHint("give one of the files")
		}
		x, err := digest(a.Ranks[r].Payload)
		if err != nil {
			return fault.Of(err).File(a.Path)
		}
		y, err := digest(b.Ranks[r].Payload)
		if err != nil {
			return fault.Of(err).File(b.Path)
		}
		if !bytes.Equal(x, y) {
			return differ.In(fmt.Sprintf("payload of rank %d", a.Ranks[r].GlobalRank))
		}
	}
	return nil
}

func digest(t *tensor.Tensor) ([]byte, error) {
	sum := sha256.New()
	_, err := t.Data().WriteTo(sum)
	return sum.Sum(nil), err
}
