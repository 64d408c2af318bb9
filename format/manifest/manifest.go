// Package manifest is the record that lies beside every output: where it came
// from, what became of each shard, and how to tell that it is whole.
package manifest

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gefenckpt/internal/fault"
)

// Name is the manifest's file in a directory. That of a file is named after it:
// full.pt has full.pt.gefenckpt.json beside it.
const Name = "gefenckpt.json"

// Schema is the version of the manifest. Fields are only ever added.
const Schema = 1

// Manifest depends on the source's bytes, the options and the tool's version
// alone: not on the clock, the machine, or where files lie.
type Manifest struct {
	Schema  int     `json:"schema"`
	Tool    string  `json:"tool"`
	Source  Source  `json:"source"`
	Options Options `json:"options"`
	Result  Result  `json:"result"`
	Files   []File  `json:"files"` // that were written, but for the manifest
}

// Source is what was converted, with the digest of each of its files.
type Source struct {
	End
	Files []File `json:"files"`
}

// Options are those that shaped the output.
type Options struct {
	To        string  `json:"to"`
	World     int     `json:"world,omitempty"`
	Key       string  `json:"key,omitempty"`
	Layout    string  `json:"layout,omitempty"`
	Container string  `json:"container"`
	Fidelity  string  `json:"fidelity,omitempty"`
	MaxGrowth float64 `json:"max_growth,omitempty"`
}

// Result says what was written, or what would be.
type Result struct {
	Source   End    `json:"source"`
	Target   End    `json:"target"`
	Fidelity string `json:"fidelity,omitempty"` // where the world changed
	Planned  bool   `json:"planned"`            // true: nothing was written
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`

	BytesPerParameter struct {
		Source float64 `json:"source"`
		Target float64 `json:"target"`
	} `json:"bytes_per_parameter"`
	// The errors of the dense state against the source's, relative L2.
	MomentumRelL2     float64     `json:"momentum_rel_l2"`
	SecondMomentRelL2 float64     `json:"second_moment_rel_l2"`
	Parameters        []Parameter `json:"parameters"`

	// Recovered says what a dense source showed of its ranks' states; nil for others.
	Recovered *Recovered `json:"recovered,omitempty"`
}

// Recovered says how much of a dense state had the structure of a compact one.
type Recovered struct {
	Elements  int64 `json:"elements"`         // with state
	Explained int64 `json:"in_source_blocks"` // of these in blocks with codewords of one codebook
	Short     int   `json:"cut_shards"`       // shards whose blocks are shorter than the second moment shows
}

// End is one end of a conversion.
type End struct {
	Path       string `json:"path"` // in a manifest the last element alone
	Form       string `json:"form"`
	Container  string `json:"container"`
	World      int    `json:"world,omitempty"` // 0 for native
	Parameters int    `json:"parameters"`
	Elements   int64  `json:"elements"`
	GlobalStep int64  `json:"global_step"`
}

// Parameter is what became of one parameter.
type Parameter struct {
	Name  string  `json:"name"`
	Ranks []Shard `json:"ranks,omitempty"`
}

// Shard is what became of one target rank's part of a parameter.
type Shard struct {
	Rank              int     `json:"rank"`
	Regime            string  `json:"regime"` // keep, split, coarsen, requantize, expand, relearn, none
	Period            int64   `json:"period"`
	BytesBefore       int64   `json:"bytes_before"`
	BytesAfter        int64   `json:"bytes_after"`
	MomentumRelL2     float64 `json:"momentum_rel_l2"`
	SecondMomentRelL2 float64 `json:"second_moment_rel_l2"`
}

// File is a file by name and digest.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"` // hexadecimal; empty when planned
}

// For is where the manifest of the output at path lies.
func For(path string, directory bool) string {
	if directory {
		return filepath.Join(path, Name)
	}
	return path + "." + Name
}

// Encode is the manifest as it is written.
func (m *Manifest) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fault.New(fault.Internal, "the manifest cannot be encoded: %w", err)
	}
	return append(data, '\n'), nil
}

// maxBytes is how large a manifest may be: that of 100,000 parameters on 1,000
// ranks is not.
const maxBytes = 1 << 30

// Read reads the manifest of the output at path, nil where there is none.
func Read(path string) (*Manifest, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fault.New(fault.Incomplete, "%w", err).File(path)
	}
	name := For(path, info.IsDir())
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err).File(name)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, fault.New(fault.Resource, "%w", err).File(name)
	}
	m, err := Decode(data)
	return m, fault.Within(err, name, "")
}

// Decode is what Encode has made. Its file names are plain.
func Decode(data []byte) (*Manifest, error) {
	const hint = "write the checkpoint again, or remove the manifest: it then passes for one that gefenckpt has not written"
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fault.New(fault.Corrupt, "the manifest is no JSON of its kind: %w", err).WithHint(hint)
	}
	if m.Schema < 1 {
		return nil, fault.New(fault.Corrupt, "the manifest has no schema").WithHint(hint)
	}
	for _, f := range m.Files {
		if f.Name == "" || filepath.Base(f.Name) != f.Name || f.Bytes < 0 {
			return nil, fault.New(fault.Corrupt, "the manifest names the file %q of %d bytes, which does not lie beside it", f.Name, f.Bytes).WithHint(hint)
		}
	}
	return &m, nil
}
