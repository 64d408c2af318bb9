package cmd

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/report"
	"gefenckpt/verify"

	"github.com/spf13/cobra"
)

func verifyCommand(a *app) *cobra.Command {
	var o verify.Options
	var digests bool
	tolerances := [3]*tolerance{{-1}, {-1}, {-1}}
	c := &cobra.Command{
		Use:   "verify PATH | verify SRC DST",
		Short: "Prove that a checkpoint is sound, or that DST means what SRC does",
		Long: `With one path, check its structure: whether a real loader would accept it, whether
every element is there once, whether every value is sane, and the digests of its
manifest.

With two, check that DST is a faithful conversion of SRC: names, groups,
hyperparameters, steps and everything carried over must be equal, and the dense
states are compared per parameter. Both are then carried on for some steps with the
same gradients. Tolerances come from the manifest (what was predicted, and 1 %
more); without one, nothing may differ where the world is the same, and else the
momentum by at most twice what one quantization loses.

Exit code 6 says that verification failed.`,
		Example: "  gefenckpt verify run/full-4.pt\n  gefenckpt verify run/full.pt run/full-4.pt --json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			var r *verify.Report
			var err error
			if len(args) == 1 {
				r, err = verify.Structure(c.Context(), args[0], a.key, digests)
			} else {
				o.Key = a.key
				o.Momentum, o.SecondMoment, o.Update = tolerances[0].x, tolerances[1].x, tolerances[2].x
				r, err = verify.Pair(c.Context(), args[0], args[1], o)
			}
			if err != nil {
				return err
			}
			return a.printVerification(r)
		},
	}
	f := c.Flags()
	f.BoolVar(&digests, "digests", false, "check the digests of the manifest alone")
	f.IntVar(&o.Steps, "steps", 3, "steps of the continuation; 0 leaves it out")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the continuation's gradients")
	f.StringSliceVar(&o.Only, "only", nil, "only parameters whose name contains one of these")
	for i, name := range []string{"momentum", "second-moment", "update"} {
		f.Var(tolerances[i], "tolerance-"+name, "largest relative L2 difference of the "+name+" (default: by rule)")
	}
	return c
}

// tolerance is a flag whose value is a number of at least 0, or not given.
type tolerance struct{ x float64 }

func (t *tolerance) Type() string { return "number" }

func (t *tolerance) String() string {
	if t.x < 0 {
		return ""
	}
	return strconv.FormatFloat(t.x, 'g', -1, 64)
}

// Set parses a number of at least 0.
func (t *tolerance) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || x < 0 || x != x {
		return fmt.Errorf("%q is no number of at least 0", s)
	}
	t.x = x
	return nil
}

func (a *app) printVerification(r *verify.Report) error {
	if a.json {
		e := report.NewEnvelope("verify")
		e.Warn(r.Warnings...)
		e.Fail(r.Faults...)
		if err := report.WriteJSON(a.out, struct {
			report.Envelope
			*verify.Report
		}{e, r}); err != nil {
			return err
		}
	} else {
		a.printFaults("warning", r.Warnings)
		if err := writeVerification(a.out, r); err != nil {
			return err
		}
		a.printFaults("error", r.Faults)
	}
	if !r.OK {
		return printed(worst(r.Faults))
	}
	return nil
}

// worst is the fault that decides the exit code: one of the input's, if there
// is one, else that the states differ.
func worst(faults []*fault.Error) error {
	for _, f := range faults {
		if f.Kind != fault.Unfaithful {
			return f
		}
	}
	return faults[0]
}

func writeVerification(w io.Writer, r *verify.Report) error {
	outcome := "sound"
	switch {
	case !r.OK && r.Level == "structure":
		outcome = "NOT SOUND"
	case !r.OK:
		outcome = "NOT FAITHFUL"
	case r.Level == "faithful":
		outcome = "faithful"
	}
	if r.Measured == nil {
		_, err := fmt.Fprintln(w, outcome)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\tmomentum\tsecond moment\tupdate\n", outcome)
	row := func(label string, f verify.Figures) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", label, figure(f.Momentum), figure(f.SecondMoment), figure(f.Update))
	}
	row("measured", *r.Measured)
	row("allowed ("+r.Rule+")", *r.Allowed)
	for i, s := range r.Steps {
		row(fmt.Sprintf("after step %d", i+1), s)
	}
	return t.Flush()
}

// figure is a relative difference; negative ones were not judged.
func figure(x float64) string {
	if x < 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
