package config

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// annotationKey is the annotation of a flag that holds its key.
const annotationKey = "key"

// keyOf returns the key that a flag sets.
func keyOf(f *pflag.Flag) string {
	if full := f.Annotations[annotationKey]; len(full) > 0 {
		return full[0]
	}
	return f.Name
}

var sameSeparators = strings.NewReplacer(".", "-", "_", "-")

// flagNames returns for every spelling of a key the name that help shows. Separators are dashes in the spellings.
var flagNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, root := range commands() {
		addNames(names, "", reflect.TypeOf(root))
	}
	return names
})

func addNames(names map[string]string, prefix string, section reflect.Type) {
	for i := range section.NumField() {
		field := section.Field(i)
		key := prefix + field.Tag.Get("koanf")
		if field.Type.Kind() == reflect.Struct {
			addNames(names, key+".", field.Type)
			continue
		}
		name := flagName(key, field)
		names[sameSeparators.Replace(key)], names[sameSeparators.Replace(name)] = name, name
	}
}

// flagName returns the name of a key's flag: the short form if the field has one.
func flagName(key string, field reflect.StructField) string {
	if short := field.Tag.Get("flag"); short != "" {
		return short
	}
	return key
}

// FlagName makes all programs accept the same spellings of a flag. It returns the name that help shows: --metrics-addr
// for --metrics.addr and --metrics_addr, --producer.batch_bytes for --producer.batch-bytes. It is a normalization
// function of pflag.
func FlagName(_ *pflag.FlagSet, given string) pflag.NormalizedName {
	spelling := sameSeparators.Replace(given)
	if name, isKey := flagNames()[spelling]; isKey {
		return pflag.NormalizedName(name)
	}
	return pflag.NormalizedName(spelling)
}

// flagsOf makes a flag for every field of a configuration, and lists the keys.
func flagsOf(defaults any) (*pflag.FlagSet, []string) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetNormalizeFunc(FlagName)
	var keys []string
	addFlags(flags, &keys, "", reflect.ValueOf(defaults))
	return flags, keys
}

func addFlags(flags *pflag.FlagSet, keys *[]string, prefix string, section reflect.Value) {
	for i := range section.NumField() {
		field := section.Type().Field(i)
		key := prefix + field.Tag.Get("koanf")
		name, doc := flagName(key, field), docs[key]
		if name != key {
			doc += " [key " + key + "]"
		}
		switch value := section.Field(i).Interface().(type) {
		case string:
			flags.String(name, value, doc)
		case []string:
			flags.StringSlice(name, value, doc)
		case bool:
			flags.Bool(name, value, doc)
		case int:
			flags.Int(name, value, doc)
		case int64:
			flags.Int64(name, value, doc)
		case time.Duration:
			flags.Duration(name, value, doc)
		case Bytes:
			flags.Var(&value, name, doc)
		default:
			addFlags(flags, keys, key+".", section.Field(i))
			continue
		}
		*keys = append(*keys, key)
		flags.Lookup(name).Annotations = map[string][]string{annotationKey: {key}}
	}
}
