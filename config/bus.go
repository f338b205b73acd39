package config

import (
	"fmt"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// bus is what a command reads that has no file.
type bus struct {
	NATS NATS `koanf:"nats"`
}

func (b bus) Validate() error { return b.NATS.Validate() }

// BusFlags adds the flags by which a command that has no file finds the bus. read takes what was not given from the
// variables; as defaults of the flags --help would show them, passwords too.
func BusFlags(flags *pflag.FlagSet) (read func() (NATS, error)) {
	own, keys := flagsOf("", bus{})
	own.VisitAll(func(f *pflag.Flag) {
		f.Usage += " [$" + variable(f.Name) + "]"
		flags.AddFlag(f)
	})
	return func() (NATS, error) {
		k := koanf.New(".")
		if err := loadEnv(k, own); err != nil {
			return NATS{}, err
		}
		given := map[string]any{}
		own.VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				given[f.Name] = f.Value.String()
			}
		})
		if err := k.Load(confmap.Provider(given, "."), nil); err != nil {
			return NATS{}, fmt.Errorf("read flags: %w", err)
		}
		if err := unknown(k, keys); err != nil {
			return NATS{}, err
		}
		if k.String("nats.url") == "" {
			return NATS{}, fmt.Errorf("--nats.url: empty: set it, or %s, to nats://host:4222", variable("nats.url"))
		}
		b, err := decode[bus](k)
		return b.NATS, err
	}
}
