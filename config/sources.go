package config

import (
	"fmt"
	"strings"

	parser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// envPrefix begins the names of gputap's variables.
const envPrefix = "GPUTAP_"

func loadFile(k *koanf.Koanf, path string) error {
	if path == "" {
		return nil
	}
	read := koanf.New(".")
	if err := read.Load(file.Provider(path), document{parser.Parser()}); err != nil {
		return fmt.Errorf("read configuration file %s: %w", path, err)
	}
	for _, key := range read.Keys() {
		if read.Get(key) == nil { // a section or key without a value, for example when all of it is commented out
			read.Delete(key)
		}
	}
	return k.Merge(read)
}

// loadVariables reads the variables that name a section with two underscores. Test switches and Kubernetes use the same
// prefix without them; a variable that is spelled like a flag is an error.
func loadVariables(k *koanf.Koanf, flags *pflag.FlagSet) error {
	var mistaken error
	provider := env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: func(name, value string) (string, any) {
		rest := strings.TrimPrefix(name, envPrefix)
		if strings.Contains(rest, "__") {
			return strings.ToLower(strings.ReplaceAll(rest, "__", ".")), value
		}
		asFlag := func(flag string) bool {
			return strings.EqualFold(sameSeparators.Replace(flag), sameSeparators.Replace(rest))
		}
		for _, flag := range []string{flagConfig, flagPrint} {
			if asFlag(flag) {
				mistaken = fmt.Errorf("variable %s has no effect; use the flag --%s", name, flag)
			}
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if asFlag(f.Name) || asFlag(keyOf(f)) {
				mistaken = fmt.Errorf("unknown variable %s: did you mean %s?", name, variable(keyOf(f)))
			}
		})
		return "", nil
	}})
	if err := k.Load(provider, nil); err != nil {
		return fmt.Errorf("read %s… variables: %w", envPrefix, err)
	}
	return mistaken
}

// variable returns the name of the variable that sets a key.
func variable(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// CheckVariables returns an error for the first variable that no program has.
func CheckVariables() error {
	k, own := koanf.New("."), pflag.NewFlagSet("", pflag.ContinueOnError)
	if err := loadVariables(k, own); err != nil {
		return err
	}
	return checkKeys(k, nil)
}

// loadFlags reads the flags that were given.
func loadFlags(k *koanf.Koanf, flags *pflag.FlagSet) error {
	given := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		return keyOf(f), posflag.FlagVal(flags, f)
	})
	if err := k.Load(given, nil); err != nil {
		return fmt.Errorf("read the flags: %w", err)
	}
	return nil
}
