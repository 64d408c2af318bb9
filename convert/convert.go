// Package convert writes a checkpoint in another form, container or world:
// source -> plan -> sink, streamed. It is the only package that writes.
package convert

import (
	"context"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
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
	manifest.Result
	Files []manifest.File `json:"files,omitempty"`
	// Next says how the target is loaded.
	Next string `json:"next"`

	Warnings []*fault.Error `json:"-"`
}

// Run converts the checkpoint at src into dst.
//
// Errors are faults: of Incomplete, Corrupt and Unsupported sources, Output and
// Resource for the target. Nothing is left behind then, and an existing target
// is as it was.
func Run(ctx context.Context, src, dst string, o Options) (*Result, error) {
	job, err := newJob(ctx, src, dst, o)
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
