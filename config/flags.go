package config

import (
	"cmp"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// known returns the flags of all programs: the name that help shows, by every spelling with dashes between the words,
// and the key of each such name.
var known = sync.OnceValues(func() (names, keys map[string]string) {
	names, keys = map[string]string{}, map[string]string{}
	for _, root := range commands() {
		eachKey(reflect.ValueOf(root), "", func(key, name string, _ any) {
			names[sameSeparators.Replace(key)], names[sameSeparators.Replace(name)] = name, name
			keys[name] = key
		})
	}
	return names, keys
})

var sameSeparators = strings.NewReplacer(".", "-", "_", "-")

// keyOf returns the key that a flag sets.
func keyOf(f *pflag.Flag) string {
	_, keys := known()
	return keys[f.Name]
}

// FlagName makes all programs accept the same spellings of a flag. It returns the name that help shows: --metrics-addr
// for --metrics.addr and --metrics_addr, --producer.batch_bytes for --producer.batch-bytes. It is a normalization
// function of pflag.
func FlagName(_ *pflag.FlagSet, given string) pflag.NormalizedName {
	spelling := sameSeparators.Replace(given)
	names, _ := known()
	return pflag.NormalizedName(cmp.Or(names[spelling], spelling))
}

// fieldsOf returns the fields of a section, and those of its embedded sections in place of them.
func fieldsOf(section reflect.Value) (fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(section.Type()) {
		if !f.Anonymous {
			fields = append(fields, f)
		}
	}
	return fields
}

// eachKey visits the keys of a configuration with the names of their flags: the short name if the field has one.
func eachKey(section reflect.Value, prefix string, visit func(key, flag string, value any)) {
	for _, field := range fieldsOf(section) {
		key, value := prefix+field.Tag.Get("koanf"), section.FieldByIndex(field.Index)
		if value.Kind() == reflect.Struct {
			eachKey(value, key+".", visit)
			continue
		}
		visit(key, cmp.Or(field.Tag.Get("flag"), key), value.Interface())
	}
}

// flagsOf makes a flag for every key of a configuration.
func flagsOf(defaults any) *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetNormalizeFunc(FlagName)
	eachKey(reflect.ValueOf(defaults), "", func(key, name string, value any) {
		doc := docs[key]
		if name != key {
			doc += " [key " + key + "]"
		}
		switch value := value.(type) {
		case string:
			flags.String(name, value, doc)
		case []string:
			flags.StringSlice(name, value, doc)
		case bool:
			flags.Bool(name, value, doc)
		case int:
			flags.Int(name, value, doc)
		case time.Duration:
			flags.Duration(name, value, doc)
		case Bytes:
			flags.Var(&value, name, doc)
		}
	})
	return flags
}
