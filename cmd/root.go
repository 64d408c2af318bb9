// Package cmd is the command line: one file per verb, which parses, calls and
// prints, and nothing else.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"gefenckpt/internal/fault"
	"gefenckpt/internal/report"

	"github.com/spf13/cobra"
)

// app is what all commands share: where they write, and the common flags.
type app struct {
	out, err io.Writer
	json     bool
	quiet    bool
	key      string
	config   string
	settings *settings
}

// Main runs the command line and returns the process exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// After the first interrupt the default handling is back: a second one ends
	// the process at once.
	context.AfterFunc(ctx, stop)
	return run(ctx, args, stdout, stderr)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = fault.New(fault.Interrupted, "stopped by an interrupt; nothing was written")
	}
	if !errors.Is(err, errPrinted) {
		a.printError(cmd.Name(), err)
	}
	return fault.KindOf(err).ExitCode()
}

// errPrinted marks an error whose text, in words or JSON, is already out.
var errPrinted = errors.New("printed")

// printed is err for the exit code only.
func printed(err error) error { return errors.Join(err, errPrinted) }

// printError prints an error that ended a command: as JSON on stdout when asked
// for JSON, else as a line on stderr.
func (a *app) printError(command string, err error) {
	f := fault.Of(err)
	if a.json {
		e := report.NewEnvelope(command)
		e.Fail(f)
		_ = report.WriteJSON(a.out, e)
		return
	}
	a.printFault("error", f)
}

func (a *app) printFault(severity string, f *fault.Error) {
	c := *f
	c.Hint = ""
	fmt.Fprintf(a.err, "gefenckpt: %s: %s\n", severity, c.Error())
	if f.Hint != "" {
		fmt.Fprintf(a.err, "  what to do: %s\n", f.Hint)
	}
}

func (a *app) printFaults(severity string, faults []*fault.Error) {
	if a.quiet && severity == "warning" {
		return
	}
	for _, f := range faults {
		a.printFault(severity, f)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "gefenckpt",
		Short: "Convert, reshard and verify checkpoints of the Gefen optimizer",
		Long: `gefenckpt moves checkpoints of Gefen, a quantized Adam-family optimizer for
PyTorch, between forms (compact, dense, native) and cluster shapes, offline.

Results go to stdout; warnings and errors go to stderr. Exit codes: 0 fine,
1 unexpected failure, 2 usage, 3 input incomplete, 4 input corrupt,
5 unsupported, 6 verification failed, 7 output exists or cannot be committed,
8 out of resources, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Args:          cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return unknownCommand(c, args[0])
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			s, err := loadSettings(c, a.config)
			a.settings = s
			return err
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fault.New(fault.Usage, "%w", err).WithHint("see gefenckpt %s --help", strings.TrimPrefix(c.CommandPath(), "gefenckpt "))
	})
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print one JSON object on stdout")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no progress and no warnings")
	flags.StringVar(&a.key, "key", "", "where the optimizer's state sits, dotted (default: found by itself when there is one)")
	flags.StringVar(&a.config, "config", "", "configuration file (default: gefenckpt.yaml in this folder, if there is one)")
	for _, add := range []func(*app) *cobra.Command{inspectCommand, convertCommand, reshardCommand, verifyCommand, configCommand} {
		c := add(a)
		c.Args = usageArgs(c.Args)
		root.AddCommand(c)
	}
	root.SuggestionsMinimumDistance = 2
	return root
}

// usageArgs makes what is wrong with positional arguments a usage fault.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return fault.New(fault.Usage, "%w", err).WithHint("use: gefenckpt %s", c.Use)
		}
		return nil
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	err := fault.New(fault.Usage, "there is no command %q", name)
	if near := root.SuggestionsFor(name); len(near) > 0 {
		return err.WithHint("did you mean %s?", strings.Join(near, " or "))
	}
	return err.WithHint("see gefenckpt --help")
}
