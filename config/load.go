package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// Flags that are not keys.
const (
	flagConfig = "config"
	flagPrint  = "print-config"
)

// ErrHelp is returned after help or the configuration was printed on request.
var ErrHelp = pflag.ErrHelp

// Load reads a program's configuration. args is the command line without the program's name.
func Load[T validator](name string, args []string, defaults T) (T, error) {
	var none T
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { help(name, flags) }
	read := Flags(flags, defaults)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return none, ErrHelp
		}
		return none, fmt.Errorf("%w; see %s --help", err, name)
	}
	if flags.NArg() > 0 {
		return none, fmt.Errorf("unexpected argument %q; see %s --help", flags.Arg(0), name)
	}
	return read()
}

// Flags adds a flag for every key, and --config and --print-config. After the flags are parsed, read returns the
// configuration: defaults, then the file, then variables, then flags.
func Flags[T validator](flags *pflag.FlagSet, defaults T) (read func() (T, error)) {
	own, keys := flagsOf(defaults)
	flags.SetNormalizeFunc(FlagName)
	own.VisitAll(flags.AddFlag)
	path := flags.String(flagConfig, "", "YAML file to read")
	show := flags.Bool(flagPrint, false, "print the configuration from all sources, and exit")
	return func() (none T, err error) {
		k := koanf.New(".")
		if err := k.Load(structs.Provider(defaults, "koanf"), nil); err != nil {
			return none, fmt.Errorf("load the defaults: %w", err)
		}
		if err := loadFile(k, *path); err != nil {
			return none, err
		}
		if err := loadVariables(k, own); err != nil {
			return none, err
		}
		if err := loadFlags(k, own); err != nil {
			return none, err
		}
		if err := checkKeys(k, keys); err != nil {
			return none, err
		}
		cfg, err := decode[T](k)
		if err != nil || !*show {
			return cfg, err
		}
		if err := Print(os.Stdout, cfg); err != nil {
			return none, err
		}
		return none, ErrHelp
	}
}
