// Package convert writes a checkpoint in another form, container or world:
// source -> plan -> sink, streamed. It is the only package that writes.
package convert

import (
	"context"

	"gefenckpt/format/checkpoint"
	"gefenckpt/internal/fault"
)

// Fidelity says how faithful a change of world is; see the package reshard.
type Fidelity string

// The fidelities.
const (
	Lossless  Fidelity = "lossless"
	Balanced  Fidelity = "balanced"
	Reference Fidelity = "reference"
)

// Options say what to write and how.
type Options struct {
	To        checkpoint.Form
	World     int                  // ranks of the target; 0: the source's
	Key       string               // where the source's optimizer sits; "": found by itself
	Layout    checkpoint.Layout    // of a torch.save target; "": nested, raw for native
	Container checkpoint.Container // "": by the target's name
	Fidelity  Fidelity
	MaxGrowth float64 // balanced: bytes per parameter above the source's, as a fraction

	DeviceType   string   // of the target's mesh; "": the source's
	MeshDimNames []string // of the target's mesh; nil: the source's

	MaxMemory int64 // bytes
	Jobs      int   // workers
	Strict    bool  // what cannot be carried over is an error
	Force     bool  // replace an existing target
	Plan      bool  // say what would be done, and stop

	// ContainerGiven says that Container was asked for; Run sets it.
	ContainerGiven bool

	Tool string // name and version, for the manifest

	// Progress is told the bytes written so far and in all; it may be nil, and is
	// called from several goroutines.
	Progress func(done, total int64)
}

// Result says what was written, or what would be.
type Result struct {
	Source   End      `json:"source"`
	Target   End      `json:"target"`
	Fidelity Fidelity `json:"fidelity,omitempty"` // where the world changed
	Planned  bool     `json:"planned"`            // true: nothing was written
	BytesIn  int64    `json:"bytes_in"`
	BytesOut int64    `json:"bytes_out"`

	BytesPerParameter struct {
		Source float64 `json:"source"`
		Target float64 `json:"target"`
	} `json:"bytes_per_parameter"`
	// The errors of the dense state against the source's, relative L2.
	MomentumRelL2     float64     `json:"momentum_rel_l2"`
	SecondMomentRelL2 float64     `json:"second_moment_rel_l2"`
	Parameters        []Parameter `json:"parameters"`
	Files             []File      `json:"files,omitempty"`
	// Next says how the target is loaded.
	Next string `json:"next,omitempty"`

	Warnings []*fault.Error `json:"-"`
}

// End is one end of a conversion.
type End struct {
	Path       string `json:"path"`
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
	Regime            string  `json:"regime"` // keep, split, coarsen, requantize, expand, none
	Period            int64   `json:"period"`
	BytesBefore       int64   `json:"bytes_before"`
	BytesAfter        int64   `json:"bytes_after"`
	MomentumRelL2     float64 `json:"momentum_rel_l2"`
	SecondMomentRelL2 float64 `json:"second_moment_rel_l2"`
}

// File is a file of the target.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"` // hexadecimal; empty when planned
}

// Run converts the checkpoint at src into dst.
//
// Errors are faults: of Incomplete, Corrupt and Unsupported sources, Output and
// Resource for the target. Nothing is left behind then, and an existing target
// is as it was.
func Run(ctx context.Context, src, dst string, o Options) (*Result, error) {
	job, err := newJob(src, dst, o)
	if job != nil {
		defer job.close()
	}
	if err != nil {
		return nil, err
	}
	if o.Plan {
		return job.result, nil
	}
	return job.result, job.write(ctx)
}
