package cmd

import (
	"errors"
	"os"
	"slices"
	"strings"

	"gefenckpt/internal/fault"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// envPrefix begins the environment variable of every flag: --max-memory is
// GEFENCKPT_MAX_MEMORY.
const envPrefix = "GEFENCKPT"

// notSettable are flags that only the command line can give.
var notSettable = []string{"help", "version", "config"}

// settings says where the value of each flag came from.
type settings struct {
	file    string // configuration file, "" if none
	origins map[string]string
}

// loadSettings gives every flag of c that the command line does not set its
// value from the environment, else from the configuration file. Only scalars
// pass through viper: parameter names never do, since it folds their case.
func loadSettings(c *cobra.Command, config string) (*settings, error) {
	s := &settings{origins: map[string]string{}}
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if err := s.readConfig(v, config); err != nil {
		return s, err
	}
	known := knownFlags(c.Root())
	for _, key := range v.AllKeys() {
		if !slices.Contains(known, key) {
			return s, fault.New(fault.Usage, "unknown setting %q", key).File(s.file).
				WithHint("settings are named like flags: %s", strings.Join(known, ", "))
		}
	}
	var err error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		env := envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		_, inEnv := os.LookupEnv(env)
		switch {
		case slices.Contains(notSettable, f.Name):
			return
		case f.Changed:
			s.origins[f.Name] = "flag"
			return
		case inEnv:
			s.origins[f.Name] = "environment " + env
		case v.InConfig(f.Name):
			s.origins[f.Name] = "file " + s.file
		default:
			s.origins[f.Name] = "default"
			return
		}
		if e := c.Flags().Set(f.Name, v.GetString(f.Name)); e != nil && err == nil {
			err = fault.New(fault.Usage, "%s: %w", s.origins[f.Name], e)
		}
	})
	return s, err
}

// readConfig reads the named file, or gefenckpt.yaml where it exists.
func (s *settings) readConfig(v *viper.Viper, path string) error {
	named := path != ""
	if !named {
		path = os.Getenv(envPrefix + "_CONFIG")
		named = path != ""
	}
	if !named {
		path = "gefenckpt.yaml"
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	s.file = path
	v.SetConfigFile(path)
	if err := v.ReadInConfig(); err != nil {
		return fault.New(fault.Usage, "configuration cannot be read: %w", err).File(path)
	}
	return nil
}

// knownFlags are the names of all flags of all commands, sorted.
func knownFlags(root *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) {
		if !slices.Contains(notSettable, f.Name) {
			names = append(names, f.Name)
		}
	}
	root.PersistentFlags().VisitAll(add)
	for _, c := range root.Commands() {
		c.LocalFlags().VisitAll(add)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
