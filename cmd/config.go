package cmd

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"gefenckpt/internal/report"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// setting is one row of `gefenckpt config --json`.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func configCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print each setting and where its value comes from",
		Long: `Print each setting and where its value comes from: the command line, a variable
GEFENCKPT_<FLAG>, the configuration file, or the default, in that order.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := allSettings(c, a.config)
			if err != nil {
				return err
			}
			if a.json {
				return report.WriteJSON(a.out, struct {
					report.Envelope
					Settings []setting `json:"settings"`
				}{report.NewEnvelope("config"), rows})
			}
			t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			for _, r := range rows {
				fmt.Fprintf(t, "%s\t%s\t%s\n", r.Name, r.Value, r.Origin)
			}
			return t.Flush()
		},
	}
}

// allSettings are the settings of every command, each name once.
func allSettings(c *cobra.Command, config string) ([]setting, error) {
	seen := map[string]setting{}
	for _, sub := range c.Root().Commands() {
		// The set of a command that was not called lacks the persistent flags
		// until it is asked for them.
		sub.InheritedFlags()
		s, err := loadSettings(sub, config)
		if err != nil {
			return nil, err
		}
		sub.Flags().VisitAll(func(f *pflag.Flag) {
			if origin, ok := s.origins[f.Name]; ok {
				seen[f.Name] = setting{f.Name, f.Value.String(), origin}
			}
		})
	}
	rows := make([]setting, 0, len(seen))
	for _, name := range knownFlags(c.Root()) {
		if r, ok := seen[name]; ok {
			rows = append(rows, r)
		}
	}
	return slices.Clip(rows), nil
}
