package cmd

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"gefenckpt/convert"
	"gefenckpt/format/checkpoint"
	"gefenckpt/format/manifest"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/report"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func convertCommand(a *app) *cobra.Command {
	t := newTransform()
	to := newChoice("", string(checkpoint.Compact), string(checkpoint.Dense), string(checkpoint.Native))
	world := 0
	c := &cobra.Command{
		Use:   "convert SRC DST --to compact|dense|native",
		Short: "Write a checkpoint in another form or container",
		Long: `Write the checkpoint SRC as DST in another form:

  compact  N rank-local payloads, as get_optimizer_state_dict gives them
  dense    a DCP directory that dcp.load reads through GefenDCPState on any
           number of ranks
  native   one process, as optimizer.state_dict() gives it

DST ending in .pt, .pth or .bin is a torch.save file, anything else a directory.
Model weights and whatever else SRC holds are carried over unchanged.`,
		Example: "  gefenckpt convert run/full.pt run/dense --to dense\n  gefenckpt convert run/dcp_payload rescued --to dense",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if to.value == "" {
				return fault.New(fault.Usage, "--to is missing").WithHint("add --to %s", strings.Join(to.allowed, "|"))
			}
			o := t.options(a)
			o.To, o.World = checkpoint.Form(to.value), world
			return a.runConvert(c, args, o)
		},
	}
	c.Flags().Var(to, "to", "form to write: "+strings.Join(to.allowed, ", "))
	c.Flags().IntVar(&world, "world", 0, "ranks of the target (default: the source's)")
	t.register(c.Flags())
	return c
}

// transform holds the flags that convert and reshard share.
type transform struct {
	o         convert.Options
	layout    *choice
	container *choice
	memory    *byteSize
	fidelity  *choice
	growth    *percent
	part      *part
}

func newTransform() *transform {
	return &transform{
		layout:    newChoice("", string(checkpoint.Nested), string(checkpoint.Flat), string(checkpoint.Raw)),
		container: newChoice("", "pt", string(checkpoint.Directory)),
		memory:    &byteSize{256 << 20},
		fidelity:  newChoice(string(convert.Balanced), fidelities...),
		growth:    &percent{0.05},
		part:      &part{},
	}
}

func (t *transform) register(f *pflag.FlagSet) {
	f.Var(t.layout, "layout", "keys of a compact or native torch.save file: "+strings.Join(t.layout.allowed, ", ")+" (default nested)")
	f.Var(t.container, "container", "pt or dcp (default: by DST's name; a compact directory must be asked for)")
	f.Var(t.fidelity, "fidelity", "where the number of ranks changes: "+strings.Join(t.fidelity.allowed, ", "))
	f.Var(t.growth, "max-growth", "balanced: bytes per parameter that the target may have above the source's")
	f.Var(t.memory, "max-memory", "memory to work in")
	f.IntVar(&t.o.Jobs, "jobs", runtime.GOMAXPROCS(0), "workers; the output does not depend on it")
	f.BoolVar(&t.o.Strict, "strict", false, "make what is not carried over an error")
	f.BoolVar(&t.o.Force, "force", false, "replace DST if it exists")
	f.BoolVar(&t.o.Resume, "resume", false, "go on with what an interrupted run of the same command has written")
	f.Var(t.part, "part", "write part i of n of DST's ranks alone, such as 3/8; join all with --finish")
	f.BoolVar(&t.o.Finish, "finish", false, "join the parts that runs of the same command with --part have written")
	f.BoolVar(&t.o.Plan, "plan", false, "say what would be done, and stop")
	f.StringVar(&t.o.DeviceType, "device-type", "", "device type of the target's mesh, such as cuda (default: the source's)")
	f.StringSliceVar(&t.o.MeshDimNames, "mesh-dim-name", nil, "dimension name of the target's mesh (default: the source's)")
}

func (t *transform) options(a *app) convert.Options {
	o := t.o
	o.Tool = "gefenckpt " + version()
	o.Part = t.part.Part
	o.Key, o.Layout, o.MaxMemory = a.key, checkpoint.Layout(t.layout.value), t.memory.n
	o.Fidelity, o.MaxGrowth = convert.Fidelity(t.fidelity.value), t.growth.fraction
	switch t.container.value {
	case "pt":
		o.Container = checkpoint.TorchFile
	case string(checkpoint.Directory):
		o.Container = checkpoint.Directory
	}
	return o
}

func (a *app) runConvert(c *cobra.Command, args []string, o convert.Options) error {
	bar := a.progress()
	o.Progress = bar.update
	result, err := convert.Run(c.Context(), args[0], args[1], o)
	bar.close()
	if err != nil {
		return err
	}
	if a.json {
		envelope := report.NewEnvelope(c.Name())
		envelope.Warn(result.Warnings...)
		return report.WriteJSON(a.out, struct {
			report.Envelope
			*convert.Result
		}{envelope, result})
	}
	a.printFaults("warning", result.Warnings)
	if a.quiet {
		return nil
	}
	return writeResult(a.out, result)
}

func writeResult(w io.Writer, r *convert.Result) error {
	verb := "wrote"
	if r.Planned {
		verb = "would write"
	}
	if r.Part != nil {
		return writePart(w, r)
	}
	_, err := fmt.Fprintf(w, "%s %s: %s, %d parameters, %s elements, step %d, %s\n", verb, r.Target.Path, endText(r.Target),
		r.Target.Parameters, humanize.Comma(r.Target.Elements), r.Target.GlobalStep, humanize.IBytes(uint64(r.BytesOut)))
	if err != nil {
		return err
	}
	if r.BytesKept > 0 {
		fmt.Fprintf(w, "resumed: an interrupted run had written %s of it\n", humanize.IBytes(uint64(r.BytesKept)))
	}
	if r.Planned && r.Fidelity != "" {
		if err := writePlan(w, r.Parameters); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "state: %.3f bytes per parameter (source %.3f); error: momentum %.3g, second moment %.3g (relative L2)\n%s\n",
		r.BytesPerParameter.Target, r.BytesPerParameter.Source, r.MomentumRelL2, r.SecondMomentRelL2, r.Next)
	return err
}

// writePart says what a part has written.
func writePart(w io.Writer, r *convert.Result) error {
	p := r.Part
	what := "wrote"
	if p.Already {
		what = "was there already:"
	}
	_, err := fmt.Fprintf(w, "%s part %d of %d, ranks %d to %d, in %s\nwhen all %d parts are there: the same command with --finish instead of --part\n",
		what, p.Index, p.Of, p.FirstRank, p.LastRank, p.Dir, p.Of)
	return err
}

// writePlan prints what becomes of each parameter: per target rank the regime and
// the block length, and the largest errors.
func writePlan(w io.Writer, params []manifest.Parameter) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "parameter\tmomentum\tsecond moment\tregime and period by rank")
	for _, p := range params {
		var momentum, second float64
		ranks := make([]string, len(p.Ranks))
		for i, s := range p.Ranks {
			momentum, second = max(momentum, s.MomentumRelL2), max(second, s.SecondMomentRelL2)
			ranks[i] = s.Regime
			if s.Period > 0 {
				ranks[i] += " " + strconv.FormatInt(s.Period, 10)
			}
		}
		fmt.Fprintf(t, "%s\t%.3g\t%.3g\t%s\n", p.Name, momentum, second, strings.Join(ranks, ", "))
	}
	return t.Flush()
}

func endText(e manifest.End) string {
	text := e.Form
	if e.World > 0 {
		text += fmt.Sprintf(" for %d ranks", e.World)
	}
	return text + " in a " + report.ContainerName(e.Container)
}
