package convert

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gefenckpt/format"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/pickle"
	"gefenckpt/format/tree"
	"gefenckpt/internal/fault"
	"gefenckpt/reshard"
)

// defaultKey is where the optimizer goes in a target whose source was the bare
// state dict: a directory's items need a name.
const defaultKey = "optimizer"

// job is one conversion: an open source, the tree of the target, and the sink
// that will write it.
type job struct {
	output
	o      Options
	dst    string
	source *checkpoint.Checkpoint
	sink   sink
	result *Result
	// denseWorld is the number of chunks per slot of a dense target.
	denseWorld int
	plan       *reshard.Plan // nil if the world stays
	parts      *parts        // of a target whose parts are joined, else nil
}

func newJob(ctx context.Context, src, dst string, o Options, out output) (*job, error) {
	o.ContainerGiven = o.Container != ""
	o.Container = containerFor(dst, o)
	if err := checkOptions(o); err != nil {
		return nil, err
	}
	source, err := format.Open(src, format.Options{Key: o.Key})
	if source == nil {
		return nil, err
	}
	j := &job{output: out, o: o, dst: dst, source: source, result: &Result{}}
	j.result.Planned = o.Plan
	if err != nil {
		return j, severalFaults(source.Faults, err)
	}
	j.result.Warnings = append(j.result.Warnings, source.Warnings...)
	target, err := j.target(ctx)
	if err != nil {
		return j, fault.Within(err, src, "")
	}
	if j.sink != nil { // the payloads of a part's ranks
		return j, j.describe()
	}
	root, err := j.carry(target)
	if err != nil {
		return j, fault.Within(err, src, "")
	}
	if j.sink, err = newSink(root, dst, o); err != nil {
		return j, fault.Within(err, dst, "")
	}
	if d, ok := j.sink.(*directorySink); ok && j.parts != nil {
		j.sink = &joinedSink{d, j.parts}
	}
	if o.Part.Of > 0 {
		if j.sink, err = j.newPartSink(nil); err != nil {
			return j, err
		}
	}
	if err := j.dropped(); err != nil {
		return j, err
	}
	return j, j.describe()
}

func (j *job) close() { j.source.Close() }

// containerFor is the container that a target's name asks for.
func containerFor(dst string, o Options) checkpoint.Container {
	if o.Container != "" {
		return o.Container
	}
	if slices.Contains([]string{".pt", ".pth", ".bin"}, strings.ToLower(filepath.Ext(dst))) {
		return checkpoint.TorchFile
	}
	return checkpoint.Directory
}

// checkOptions refuses what cannot be before anything is read.
func checkOptions(o Options) error {
	switch {
	case o.To == checkpoint.Dense && o.Container == checkpoint.TorchFile:
		return fault.New(fault.Usage, "the dense form is a directory, and the target's name is a torch.save file's").
			WithHint("name a directory; dcp.load reads no .pt file")
	case o.To == checkpoint.Dense && o.Layout != "":
		return fault.New(fault.Usage, "--layout is for the compact and native forms")
	case o.To == checkpoint.Compact && o.Container == checkpoint.Directory && !o.ContainerGiven:
		return fault.New(fault.Usage, "a compact checkpoint in a directory is refused by dcp.load").
			WithHint("name a .pt file, or convert --to dense; --container dcp writes the directory all the same")
	}
	return nil
}

// severalFaults is the first fault of a source, with the number of the others.
func severalFaults(faults []*fault.Error, first error) error {
	if len(faults) < 2 {
		return first
	}
	e := *fault.Of(first)
	if e.Hint == "" {
		e.Hint = fmt.Sprintf("gefenckpt inspect lists this and %d more faults", len(faults)-1)
	}
	return &e
}

// carry puts the optimizer's subtree in the place of the source's, and keeps
// everything else.
func (j *job) carry(optimizer pickle.Value) (pickle.Value, error) {
	key := j.source.Key
	if len(key) == 0 {
		if j.o.Container == checkpoint.TorchFile {
			return optimizer, nil
		}
		return pickle.NewDict(defaultKey, optimizer), nil
	}
	return tree.Replace(j.source.Root, optimizer, tree.Keys(key...)...)
}

// dropped reports what the target's container cannot hold.
func (j *job) dropped() error {
	for _, what := range j.sink.dropped() {
		e := fault.New(fault.Unsupported, "an empty dict leaves no trace in a directory").In(what).File(j.source.Path)
		if j.o.Strict {
			return e.WithHint("leave out --strict to write the checkpoint without it")
		}
		j.result.Warnings = append(j.result.Warnings, e)
	}
	return nil
}

// errAbort joins an error with that of the clean-up.
func errAbort(err error, s interface{ Abort() error }) error { return errors.Join(err, s.Abort()) }
