package cmd

import (
	"gefenckpt/convert"
	"gefenckpt/format"
	"gefenckpt/format/checkpoint"
	"gefenckpt/internal/fault"

	"github.com/spf13/cobra"
)

func reshardCommand(a *app) *cobra.Command {
	t := newTransform()
	to := 0
	c := &cobra.Command{
		Use:   "reshard SRC DST --to M",
		Short: "Re-cut a checkpoint for another number of ranks",
		Long: `Re-cut the checkpoint SRC for M ranks as DST, in the form that SRC has.

  balanced   at most --max-growth more bytes per parameter, and within that the
             smallest error of the next updates (the default)
  lossless   every momentum and second moment bit for bit, at whatever size
  reference  what GefenDCPState would hold after loading on M ranks`,
		Example: "  gefenckpt reshard run/full.pt run/full-4.pt --to 4\n  gefenckpt reshard run/full.pt run/full-4.pt --to 4 --plan",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if to < 1 {
				return fault.New(fault.Usage, "--to is missing").WithHint("add --to M, the number of ranks to write for")
			}
			form, err := formOf(args[0], a.key)
			if err != nil {
				return err
			}
			o := t.options(a)
			o.To, o.World = form, to
			return a.runConvert(c, args, o)
		},
	}
	c.Flags().IntVar(&to, "to", 0, "ranks of the target")
	t.register(c.Flags())
	return c
}

// formOf is the form that a reshard keeps.
func formOf(path, key string) (checkpoint.Form, error) {
	cp, err := format.Open(path, format.Options{Key: key})
	if cp == nil {
		return "", err
	}
	defer cp.Close()
	if cp.Form == checkpoint.Native && cp.Optimizer == checkpoint.Gefen {
		return "", fault.New(fault.Unsupported, "a native checkpoint has no ranks to re-cut").File(path).
			WithHint("use gefenckpt convert --to compact --world M")
	}
	return cp.Form, err
}

// fidelities are the words of --fidelity.
var fidelities = []string{string(convert.Lossless), string(convert.Balanced), string(convert.Reference)}
