package config

import (
	"reflect"
	"time"

	"github.com/spf13/pflag"
)

// annotationKey is the annotation of a short flag that holds its key.
const annotationKey = "key"

// keyOf returns the key that a flag sets.
func keyOf(f *pflag.Flag) string {
	if full := f.Annotations[annotationKey]; len(full) > 0 {
		return full[0]
	}
	return f.Name
}

// flagsOf makes a flag for every field of a configuration, and lists the keys.
func flagsOf(defaults any) (*pflag.FlagSet, []string) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	var keys []string
	addFlags(flags, &keys, "", reflect.ValueOf(defaults))
	return flags, keys
}

func addFlags(flags *pflag.FlagSet, keys *[]string, prefix string, section reflect.Value) {
	for i := range section.NumField() {
		field := section.Type().Field(i)
		key := prefix + field.Tag.Get("koanf")
		doc := docs[key]
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
			flags.Var(flags.Lookup(key).Value, short, "short form of --"+key)
			flags.Lookup(short).Annotations = map[string][]string{annotationKey: {key}}
			flags.Lookup(short).NoOptDefVal = flags.Lookup(key).NoOptDefVal // a bool without a value is true
		}
	}
}
