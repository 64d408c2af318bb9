// Package convert writes a checkpoint in another form, container or world:
// source -> plan -> sink, streamed. It is the only package that writes.
package convert

import (
	"context"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"
)

// Fidelity says how faithful a change of world is; see the package reshard.
type Fidelity string

// The fidelities.
const (
	Lossless  Fidelity = "lossless"
	Balanced  Fidelity = "balanced"
	Reference Fidelity = "reference"
)

// Options say what to write and how. Those that the target's bytes depend on have
// JSON names, by which the runs of an interrupted conversion must agree.
type Options struct {
	To        checkpoint.Form      `json:"to"`
	World     int                  `json:"world"`     // ranks of the target; 0: the source's
	Key       string               `json:"key"`       // where the source's optimizer sits; "": found by itself
	Layout    checkpoint.Layout    `json:"layout"`    // of a torch.save target; "": nested, raw for native
	Container checkpoint.Container `json:"container"` // "": by the target's name
	Fidelity  Fidelity             `json:"fidelity"`
	MaxGrowth float64              `json:"max-growth"` // balanced: bytes per parameter above the source's, as a fraction

	DeviceType   string   `json:"device-type"`   // of the target's mesh; "": the source's
	MeshDimNames []string `json:"mesh-dim-name"` // of the target's mesh; nil: the source's

	MaxMemory int64 `json:"-"` // bytes
	Jobs      int   `json:"-"` // workers
	Strict    bool  `json:"-"` // what cannot be carried over is an error
	Force     bool  `json:"-"` // replace an existing target
	Plan      bool  `json:"-"` // say what would be done, and stop
	Resume    bool  `json:"-"` // go on with what an interrupted run has staged

	Part   Part `json:"-"` // write a part of the target's ranks alone
	Finish bool `json:"-"` // join the parts

	// ContainerGiven says that Container was asked for; Run sets it.
	ContainerGiven bool `json:"-"`

	Tool string `json:"version of the tool"` // name and version, for the manifest

	// Progress is told the bytes written so far and in all; it may be nil, and is
	// called from several goroutines.
	Progress func(done, total int64) `json:"-"`
}

// Result says what was written, or what would be.
type Result struct {
	manifest.Result
	Files []manifest.File `json:"files,omitempty"`
	// Next says how the target is loaded.
	Next string `json:"next"`
	// BytesKept is how much of the target an interrupted run had written.
	BytesKept int64 `json:"bytes_kept,omitempty"`
	// Part is the part that was written; nil if it was not one.
	Part *PartDone `json:"part,omitempty"`

	Warnings []*fault.Error `json:"-"`
}

// Run converts the checkpoint at src into dst.
//
// Errors are faults: of Incomplete, Corrupt and Unsupported sources, Output and
// Resource for the target. Nothing is left behind then, and an existing target
// is as it was. When ctx ends, what is staged is kept for a run with Resume.
func Run(ctx context.Context, src, dst string, o Options) (*Result, error) {
	return run(ctx, src, dst, o, output{fs: fsx.OS{}})
}

func run(ctx context.Context, src, dst string, o Options, out output) (*Result, error) {
	job, err := newJob(ctx, src, dst, o, out)
	if job != nil {
		defer job.close()
	}
	if err != nil {
		return nil, err
	}
	if o.Plan {
		return job.result, nil
	}
	if o.Part.Of > 0 {
		if already, err := job.beginPart(); already || err != nil {
			return job.result, err
		}
	}
	return job.result, job.write(ctx)
}

// output is where a target is written, and how often what is staged is made
// durable; 0 is package fsx's own choice.
type output struct {
	fs        fsx.FS
	syncEvery int64
}
