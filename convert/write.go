package convert

import (
	"context"
	"errors"
	"sync/atomic"

	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/fsx"

	"golang.org/x/sync/errgroup"
)

// write stages the target, file by file, and commits it with its manifest.
func (j *job) write(ctx context.Context) error {
	directory := j.o.Container == checkpoint.Directory || j.o.Part.Of > 0
	pins, err := j.pins()
	if err != nil {
		return err
	}
	staging, err := fsx.Stage(j.fs, j.dst, fsx.Options{Directory: directory, Force: j.o.Force, Bytes: j.result.BytesOut,
		Pins: pins, Resume: j.o.Resume, SyncEvery: j.syncEvery})
	if err != nil {
		return err
	}
	j.result.BytesKept = staging.Kept()
	files := j.sink.files()
	last := len(files) - 1
	var done atomic.Int64
	one := func(ctx context.Context, f sinkFile) error {
		w, err := staging.Create(f.name)
		if err != nil {
			return err
		}
		pass := func(n int) {
			if j.o.Progress != nil {
				j.o.Progress(done.Add(int64(n)), j.result.BytesOut)
			}
		}
		if err := f.write(&metered{ctx, w, pass}); err != nil {
			return placed(err, j.source.Path, j.dst)
		}
		return w.Close()
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(max(j.o.Jobs, 1))
	for _, f := range files[:last] {
		group.Go(func() error { return one(gctx, f) })
	}
	var sources []manifest.File
	if j.o.Part.Of == 0 {
		sources, err = j.digestSources(gctx, group)
	}
	if e := group.Wait(); err == nil {
		err = e
	}
	if err == nil {
		err = one(ctx, files[last])
	}
	if err == nil {
		err = j.verifySource()
	}
	if err == nil {
		j.result.Files = written(staging.Files())
		if j.o.Part.Of > 0 {
			err = j.writeRecord(staging)
		} else {
			err = j.writeManifest(staging, sources, directory)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	switch {
	case err == nil:
		if err := staging.Commit(); err != nil || j.parts == nil {
			return err
		}
		return j.parts.remove()
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return suspend(staging)
	}
	return errAbort(err, staging)
}

// suspend keeps what is staged and says how to go on.
func suspend(staging *fsx.Staging) error {
	if err := staging.Suspend(); err != nil {
		return err
	}
	return fault.New(fault.Interrupted, "stopped by an interrupt; what was written so far is kept").File(staging.Dir()).
		WithHint("run the same command with --resume to go on, or remove that directory")
}

// verifySource completes the checksums of what was read out of order.
func (j *job) verifySource() error {
	if v, ok := j.source.Closer.(interface{ Verify() error }); ok {
		if err := v.Verify(); err != nil {
			return fault.Within(err, j.source.Path, "")
		}
	}
	for _, r := range j.source.Ranks {
		if r.Verify == nil {
			continue
		}
		if err := r.Verify(); err != nil {
			return fault.Within(err, j.source.Path, "")
		}
	}
	return nil
}

// placed names the source in an error that has no file: what fails while a
// target is written is the reading of its source, unless the error says
// otherwise.
func placed(err error, src, dst string) error {
	switch fault.KindOf(err) {
	case fault.Corrupt, fault.Incomplete, fault.Unsupported:
		return fault.Within(err, src, "")
	}
	return err
}
