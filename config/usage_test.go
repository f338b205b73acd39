package config

import (
	"os"
	"strings"
	"testing"
)

// TestHelpExamplesWork loads every example of every program's --help.
func TestHelpExamplesWork(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, load := range map[string]func(string, []string) error{
		"gputap-producer": func(name string, args []string) error {
			_, err := Load(name, args, DefaultProducerCommand())
			return err
		},
		"gputap-leak": func(name string, args []string) error {
			_, err := Load(name, args, DefaultLeakCommand())
			return err
		},
		"gputap-launch": func(name string, args []string) error {
			_, err := Load(name, args, DefaultLaunchCommand())
			return err
		},
		"gputap-bandwidth": func(name string, args []string) error {
			_, err := Load(name, args, DefaultBandwidthCommand())
			return err
		},
		"gputap-anomaly": func(name string, args []string) error {
			_, err := Load(name, args, DefaultAnomalyCommand())
			return err
		},
	} {
		if len(usages[name].examples) == 0 || usages[name].about == "" {
			t.Errorf("%s: --help has no purpose or no example", name)
		}
		for _, example := range usages[name].examples {
			if err := os.WriteFile("gputap.yaml", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := load(name, strings.Fields(strings.ReplaceAll(example, "/etc/", ""))); err != nil {
				t.Errorf("%s %s: %v", name, example, err)
			}
		}
	}
}
