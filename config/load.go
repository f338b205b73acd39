package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	parser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// envPrefix begins the names of gputap's variables.
const envPrefix = "GPUTAP_"

// ErrHelp is returned after help or the configuration was printed on request.
var ErrHelp = pflag.ErrHelp

// validator is a program's configuration or a section of it. Validate names the first key with a wrong value.
type validator interface{ Validate() error }

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
		return none, fmt.Errorf("%w; see %s --help", FlagError(err), name)
	}
	if flags.NArg() > 0 {
		return none, fmt.Errorf("unexpected argument %q; see %s --help", flags.Arg(0), name)
	}
	return read()
}

// Flags adds a flag for every key, and --config and --print-config. After the flags are parsed, read returns the
// configuration: defaults, then the file, then variables, then flags.
func Flags[T validator](flags *pflag.FlagSet, defaults T) (read func() (T, error)) {
	own := flagsOf(defaults)
	flags.SetNormalizeFunc(FlagName)
	own.VisitAll(flags.AddFlag)
	path := flags.String("config", "", "YAML file to read")
	show := flags.Bool("print-config", false, "print the configuration from all sources, and exit")
	return func() (none T, err error) {
		cfg, err := merge[T](*path, own)
		if err != nil || !*show {
			return cfg, err
		}
		return none, cmp.Or(Print(os.Stdout, cfg), ErrHelp)
	}
}

// busCommand is the configuration of a command that reads no file.
type busCommand struct {
	NATS NATS `koanf:"nats"`
}

func (b busCommand) Validate() error {
	if b.NATS.URL == "" {
		return fmt.Errorf("--nats.url: empty; set it, or %s, to nats://host:4222", variable("nats.url"))
	}
	return b.NATS.Validate()
}

// BusFlags adds the nats flags of a command that reads no file. After the flags are parsed, read returns the section:
// variables, then flags. Variables are not defaults of the flags, because --help would print a password.
func BusFlags(flags *pflag.FlagSet) (read func() (NATS, error)) {
	own := flagsOf(busCommand{})
	flags.SetNormalizeFunc(FlagName)
	own.VisitAll(func(f *pflag.Flag) {
		f.Usage += " [$" + variable(keyOf(f)) + "]"
		flags.AddFlag(f)
	})
	return func() (NATS, error) {
		c, err := merge[busCommand]("", own)
		return c.NATS, err
	}
}

// merge reads all sources and validates the result.
func merge[T validator](path string, flags *pflag.FlagSet) (none T, err error) {
	k := koanf.New(".")
	if path != "" {
		if err := loadFile(k, path); err != nil {
			return none, fmt.Errorf("read configuration file %s: %w", path, err)
		}
	}
	if err := loadVariables(k); err != nil {
		return none, err
	}
	// A flag that was not given has its default. posflag uses that only if the file and the variables lack the key.
	given := posflag.ProviderWithFlag(flags, ".", k, func(f *pflag.Flag) (string, any) {
		return keyOf(f), posflag.FlagVal(flags, f)
	})
	if err := k.Load(given, nil); err != nil {
		return none, fmt.Errorf("read the flags: %w", err)
	}
	return decode[T](k)
}

func loadFile(k *koanf.Koanf, path string) error {
	read := koanf.New(".")
	if err := read.Load(file.Provider(path), document{parser.Parser()}); err != nil {
		return err
	}
	for _, key := range read.Keys() {
		for _, part := range read.KeyMap()[key] {
			if dots := strings.Count(part, "."); dots > 0 {
				nested := strings.ReplaceAll(part, ".", ": {") + ": …" + strings.Repeat("}", dots)
				return fmt.Errorf("key %s has dots; in a file write %s", part, nested)
			}
		}
		if read.Get(key) == nil { // a section or key without a value, for example when all of it is commented out
			read.Delete(key)
		}
	}
	if err := checkKeys(read); err != nil {
		return err
	}
	return k.Merge(read)
}

// document is a file with one YAML document. The parser alone would ignore all documents after the first.
type document struct{ *parser.YAML }

func (document) Unmarshal(data []byte) (first map[string]any, err error) {
	in := yaml.NewDecoder(bytes.NewReader(data))
	err = in.Decode(&first)
	for err == nil {
		var more any
		if err = in.Decode(&more); more != nil {
			return nil, errors.New("the file has a second document after ---; write one document")
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return first, nil
}

// loadVariables reads the variables that name a section with two underscores. Test switches and Kubernetes use the same
// prefix without them.
func loadVariables(k *koanf.Koanf) error {
	read := koanf.New(".")
	provider := env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: func(name, value string) (string, any) {
		name = strings.ToLower(strings.TrimPrefix(name, envPrefix))
		if !strings.Contains(name, "__") {
			return "", nil
		}
		return strings.ReplaceAll(name, "__", "."), value
	}})
	if err := read.Load(provider, nil); err != nil {
		return fmt.Errorf("read %s… variables: %w", envPrefix, err)
	}
	for _, key := range read.Keys() {
		if err := CheckKey(key); err != nil {
			return fmt.Errorf("variable %s: %w", variable(key), err)
		}
	}
	return k.Merge(read)
}

// variable returns the name of the variable that sets a key.
func variable(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// CheckVariables returns an error for the first variable that no program has.
func CheckVariables() error { return loadVariables(koanf.New(".")) }
