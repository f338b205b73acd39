package config

import (
	"fmt"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// busCommand is the configuration of a command that reads no file.
type busCommand struct {
	NATS NATS `koanf:"nats"`
}

// Validate names the first key with a wrong value.
func (b busCommand) Validate() error { return b.NATS.Validate() }

// BusFlags adds the nats flags of a command that reads no file. After the flags are parsed, read returns the section:
// variables, then flags. Variables are not defaults of the flags, because --help would print a password.
func BusFlags(flags *pflag.FlagSet) (read func() (NATS, error)) {
	own, keys := flagsOf(busCommand{})
	flags.SetNormalizeFunc(FlagName)
	own.VisitAll(func(f *pflag.Flag) {
		f.Usage += " [$" + variable(keyOf(f)) + "]"
		flags.AddFlag(f)
	})
	return func() (NATS, error) {
		k := koanf.New(".")
		if err := loadVariables(k, own); err != nil {
			return NATS{}, err
		}
		if err := loadFlags(k, own); err != nil {
			return NATS{}, err
		}
		if err := checkKeys(k, keys); err != nil {
			return NATS{}, err
		}
		if k.String("nats.url") == "" {
			return NATS{}, fmt.Errorf("--nats.url: empty; set it, or %s, to nats://host:4222", variable("nats.url"))
		}
		c, err := decode[busCommand](k)
		return c.NATS, err
	}
}
