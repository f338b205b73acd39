package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	parser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// envPrefix begins every variable that is ours.
const envPrefix = "GPUTAP_"

// annotationKey is where the short name of a flag keeps its key.
const annotationKey = "key"

// Flags that are no keys.
const (
	flagConfig = "config"
	flagPrint  = "print-config"
)

// ErrHelp is returned when the arguments ask for help, or for the configuration itself, and that has
// been printed.
var ErrHelp = pflag.ErrHelp

// Load reads a command's configuration. args are the command line without the program's name.
func Load[T validator](name string, args []string, defaults T) (T, error) {
	var none T
	flags, keys := flagsOf(name, defaults)
	path := flags.String(flagConfig, "", "YAML file")
	show := flags.Bool(flagPrint, false, "print the configuration that all sources give, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return none, ErrHelp
		}
		return none, fmt.Errorf("%w (see %s --help)", err, name)
	}
	if flags.NArg() > 0 {
		return none, fmt.Errorf("unexpected argument %q (see %s --help)", flags.Arg(0), name)
	}
	k := koanf.New(".")
	if err := k.Load(structs.Provider(defaults, "koanf"), nil); err != nil {
		return none, fmt.Errorf("load defaults: %w", err)
	}
	for _, source := range []func(*koanf.Koanf) error{
		func(k *koanf.Koanf) error { return loadFile(k, *path) },
		func(k *koanf.Koanf) error { return loadEnv(k, flags) },
		func(k *koanf.Koanf) error { return loadFlags(k, flags) },
	} {
		if err := source(k); err != nil {
			return none, err
		}
	}
	if err := unknown(k, keys); err != nil {
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

func decode[T validator](k *koanf.Koanf) (cfg T, err error) {
	err = k.UnmarshalWithConf("", &cfg, koanf.UnmarshalConf{Tag: "koanf", DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "koanf", Result: &cfg, WeaklyTypedInput: true, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			exact, parseBytes, mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	}})
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	return cfg, cfg.Validate()
}

// exact refuses what a weak decoding would bend in silence: 5 to 5ns, 1.9 to 1, true to 1, nothing to 0, and for a text
// 0123 to 83, true to 1. In a list of texts whole numbers are taken: they are pids and uids.
func exact(from, to reflect.Type, data any) (any, error) {
	duration := reflect.TypeFor[time.Duration]()
	if t, ok := data.(time.Time); ok && to.Kind() == reflect.String { // YAML knows times
		return t.Format(time.RFC3339Nano), nil
	}
	if to == reflect.TypeFor[[]string]() {
		return listed(data), nil
	}
	switch {
	case to.Kind() == reflect.String && (from.Kind() == reflect.Int || from.Kind() == reflect.Float64 || from.Kind() == reflect.Bool):
		return nil, errors.New("a number or a truth where a text belongs, which YAML may read otherwise than it stands: write it in quotes")
	case to == duration && from != duration && from.Kind() != reflect.String && fmt.Sprint(data) != "0":
		return nil, fmt.Errorf("%v has no unit: write 5s, 10m or 1h", data)
	case from.Kind() == reflect.String && data == "" && (to.Kind() == reflect.Int || to.Kind() == reflect.Int64 || to.Kind() == reflect.Bool):
		return nil, errors.New("empty: give it a value, or leave it out")
	case (to.Kind() == reflect.Int || to.Kind() == reflect.Int64) && (from.Kind() == reflect.Float64 || from.Kind() == reflect.Bool):
		return nil, fmt.Errorf("%v is no whole number", data)
	case to.Kind() == reflect.String && from.Kind() == reflect.Slice:
		return nil, errors.New("a list: write it as one text, with commas between") // and not what is in it, which may be a password
	}
	return data, nil
}

// listed writes the whole numbers of a list of texts as texts.
func listed(data any) any {
	list, ok := data.([]any)
	if n, number := data.(int); number {
		list, ok = []any{n}, true
	}
	if !ok {
		return data
	}
	list = slices.Clone(list)
	for i := range list {
		if n, ok := list[i].(int); ok {
			list[i] = strconv.Itoa(n)
		}
	}
	return list
}

func loadFile(k *koanf.Koanf, path string) error {
	if path == "" {
		return nil
	}
	read := koanf.New(".")
	if err := read.Load(file.Provider(path), document{parser.Parser()}); err != nil {
		return fmt.Errorf("read configuration file %s: %w", path, err)
	}
	for _, key := range read.Keys() {
		if read.Get(key) == nil { // a section or key without a value, as when all below it is a comment
			read.Delete(key)
		}
	}
	return k.Merge(read)
}

// loadEnv takes the variables that have a section. Test switches and Kubernetes share the prefix; what is named as one of
// the flags is neither.
func loadEnv(k *koanf.Koanf, flags *pflag.FlagSet) error {
	var mistaken error
	provider := env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: func(name, value string) (string, any) {
		rest := strings.TrimPrefix(name, envPrefix)
		if strings.Contains(rest, "__") {
			return strings.ToLower(strings.ReplaceAll(rest, "__", ".")), value
		}
		flags.VisitAll(func(f *pflag.Flag) {
			switch {
			case !strings.EqualFold(strings.NewReplacer(".", "_", "-", "_").Replace(f.Name), rest):
			case f.Name == flagConfig || f.Name == flagPrint:
				mistaken = fmt.Errorf("variable %s: is none: write --%s on the command line", name, f.Name)
			default:
				mistaken = fmt.Errorf("variable %s: did you mean %s?", name, variable(keyOf(f)))
			}
		})
		return "", nil
	}})
	if err := k.Load(provider, nil); err != nil {
		return fmt.Errorf("read %s… variables: %w", envPrefix, err)
	}
	return mistaken
}

func variable(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// keyOf is the key that a flag sets, by its short name too.
func keyOf(f *pflag.Flag) string {
	if full := f.Annotations[annotationKey]; len(full) > 0 {
		return full[0]
	}
	return f.Name
}

// loadFlags takes only the flags that were given.
func loadFlags(k *koanf.Koanf, flags *pflag.FlagSet) error {
	given := map[string]any{}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name == flagConfig || f.Name == flagPrint {
			return
		}
		key := keyOf(f)
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given[key] = list.GetSlice()
			return
		}
		given[key] = f.Value.String()
	})
	if err := k.Load(confmap.Provider(given, "."), nil); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	return nil
}

// unknown names the first key that no command has, and the known one nearest to it. Keys of other
// commands it takes out.
func unknown(k *koanf.Koanf, known []string) error {
	foreign := map[string]bool{}
	for _, root := range commands() {
		_, keys := flagsOf("", root)
		for _, key := range keys {
			foreign[key] = true
		}
	}
	for _, key := range k.Keys() {
		if slices.Contains(known, key) {
			continue
		}
		if !foreign[key] {
			nearest := slices.MinFunc(known, func(a, b string) int { return distance(key, a) - distance(key, b) })
			return fmt.Errorf("unknown key %s (as a variable %s): did you mean %s?", key, variable(key), nearest)
		}
		k.Delete(key)
	}
	return nil
}

// distance is the number of edits between two keys.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// flagsOf makes a flag of every field, and lists the keys.
func flagsOf(name string, defaults any) (*pflag.FlagSet, []string) {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { help(name, flags) }
	var keys []string
	addFlags(flags, &keys, "", reflect.ValueOf(defaults))
	return flags, keys
}

func addFlags(flags *pflag.FlagSet, keys *[]string, prefix string, section reflect.Value) {
	for i := range section.NumField() {
		field := section.Type().Field(i)
		key := prefix + field.Tag.Get("koanf")
		doc := field.Tag.Get("doc")
		switch value := section.Field(i).Interface().(type) {
		case string:
			flags.String(key, value, doc)
		case []string:
			flags.StringSlice(key, value, doc)
		case bool:
			flags.Bool(key, value, doc)
		case int:
			flags.Int(key, value, doc)
		case int64:
			flags.Int64(key, value, doc)
		case time.Duration:
			flags.Duration(key, value, doc)
		case Bytes:
			flags.Var(&value, key, doc)
		default:
			addFlags(flags, keys, key+".", section.Field(i))
			continue
		}
		*keys = append(*keys, key)
		if short := field.Tag.Get("flag"); short != "" {
			flags.Var(flags.Lookup(key).Value, short, "the same as --"+key)
			flags.Lookup(short).Annotations = map[string][]string{annotationKey: {key}}
			flags.Lookup(short).NoOptDefVal = flags.Lookup(key).NoOptDefVal // of a bool: "true"
		}
	}
}
