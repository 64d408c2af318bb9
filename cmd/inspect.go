package cmd

import (
	"gefenckpt/format"
	"gefenckpt/internal/fault"
	"gefenckpt/internal/report"

	"github.com/spf13/cobra"
)

func inspectCommand(a *app) *cobra.Command {
	var params bool
	var only []string
	c := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Say what a checkpoint holds",
		Long: `Say what a checkpoint holds: form, container, world, step, groups, parameters,
bytes per parameter, and what else is in it. Of a broken checkpoint it prints
what could be read, then what is wrong.`,
		Example: "  gefenckpt inspect run/full.pt --params\n  gefenckpt inspect run/dcp --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cp, err := format.Open(args[0], format.Options{Key: a.key})
			if cp == nil {
				return err
			}
			defer cp.Close()
			return a.printInspection(report.Inspect(cp, only), cp.Warnings, faults(cp.Faults, err), params || len(only) > 0)
		},
	}
	c.Flags().BoolVar(&params, "params", false, "one line per parameter")
	c.Flags().StringSliceVar(&only, "only", nil, "only parameters whose name contains one of these")
	return c
}

// faults are those that a checkpoint has, and the error that ended its opening
// unless it is one of them.
func faults(found []*fault.Error, err error) []*fault.Error {
	if err != nil && len(found) == 0 {
		return []*fault.Error{fault.Of(err)}
	}
	return found
}

func (a *app) printInspection(r *report.Inspection, warnings, faults []*fault.Error, params bool) error {
	r.Fail(faults...)
	if a.json {
		if err := report.WriteJSON(a.out, r); err != nil {
			return err
		}
	} else {
		if err := r.WriteText(a.out, params); err != nil {
			return err
		}
		a.printFaults("warning", warnings)
		a.printFaults("error", faults)
	}
	if len(faults) > 0 {
		return printed(faults[0])
	}
	return nil
}
