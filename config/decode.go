package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// decode turns the merged keys into a configuration and validates it.
func decode[T validator](k *koanf.Koanf) (cfg T, err error) {
	err = k.UnmarshalWithConf("", &cfg, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "koanf", Result: &cfg, WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(exact, mapstructure.StringToSliceHookFunc(",")),
	}})
	if err != nil {
		return cfg, keyed(err)
	}
	return cfg, cmp.Or(cfg.Validate(), checkDurations(cfg, "", 0, "negative; use 0 or more"))
}

// checkDurations names the first key of a section with a duration below the least.
func checkDurations(section any, prefix string, least time.Duration, problem string) (err error) {
	eachKey(reflect.ValueOf(section), prefix, func(key, _ string, value any) {
		if d, ok := value.(time.Duration); ok && d < least && err == nil {
			err = fmt.Errorf("%s: %s is %s", key, d, problem)
		}
	})
	return err
}

// keyed reduces the decoder's list of errors to the first, which it begins with the key.
func keyed(err error) error {
	var first, inner *mapstructure.DecodeError
	if !errors.As(err, &first) {
		return fmt.Errorf("read the configuration: %w", err)
	}
	for errors.As(first.Unwrap(), &inner) {
		first = inner
	}
	return fmt.Errorf("%s: %w", first.Name(), first.Unwrap())
}

// exact rejects values that weak decoding would change silently: 5 to 5ns, 1.9 to 1, true to 1, "" to 0, and as a
// string 0123 to 83. A list of strings may hold whole numbers, because pids and uids are written as numbers.
func exact(from, to reflect.Type, data any) (any, error) {
	switch {
	case to == reflect.TypeFor[[]string]():
		return stringList(data), nil
	case to == reflect.TypeFor[time.Duration]():
		return exactDuration(from, data)
	case to.Kind() == reflect.String:
		return exactString(from, data)
	case to.Kind() == reflect.Int || to.Kind() == reflect.Int64 || to.Kind() == reflect.Bool:
		return exactNumber(from, to, data)
	}
	return data, nil
}

func exactDuration(from reflect.Type, data any) (any, error) {
	text, isText := data.(string)
	switch {
	case isText && text == "":
		return nil, errors.New("expected a duration, got nothing; use 5s, 10m or 1h, or remove the key")
	case isText:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("expected a duration, got %q; use a number with a unit, such as 5s, 10m or 1h", text)
		}
		return d, nil
	case from != reflect.TypeFor[time.Duration]() && fmt.Sprint(data) != "0":
		return nil, fmt.Errorf("expected a duration, got %v without a unit; use 5s, 10m or 1h", data)
	}
	return data, nil
}

func exactString(from reflect.Type, data any) (any, error) {
	if t, ok := data.(time.Time); ok { // YAML has a type for times
		return t.Format(time.RFC3339Nano), nil
	}
	switch from.Kind() {
	case reflect.Int, reflect.Float64:
		return nil, errors.New("expected a string, got a number; put it in quotes")
	case reflect.Bool:
		return nil, errors.New("expected a string, got true or false; put it in quotes")
	case reflect.Slice: // the list is not repeated here, because it may hold a password
		return nil, errors.New("expected a string, got a list; write one string with commas")
	}
	return data, nil
}

func exactNumber(from, to reflect.Type, data any) (any, error) {
	text, isText := data.(string)
	switch {
	case isText && text == "":
		return nil, errors.New("expected a value, got nothing; set a value or remove the key")
	case isText && to == reflect.TypeFor[Bytes]():
		return ParseBytes(text)
	case to.Kind() == reflect.Bool:
		return data, nil
	case isText:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("expected a whole number, got %q", text)
		}
		return n, nil
	case from.Kind() == reflect.Float64 || from.Kind() == reflect.Bool:
		return nil, fmt.Errorf("expected a whole number, got %v", data)
	}
	return data, nil
}

// stringList turns the whole numbers of a list of strings into strings.
func stringList(data any) any {
	switch data := data.(type) {
	case int:
		return []string{strconv.Itoa(data)}
	case []any:
		list := slices.Clone(data)
		for i, entry := range list {
			if n, isNumber := entry.(int); isNumber {
				list[i] = strconv.Itoa(n)
			}
		}
		return list
	}
	return data
}

// Bytes is a number of bytes that files, variables and flags may give with a unit. It is a pflag.Value.
type Bytes int64

// ParseBytes reads 64GiB (powers of 1024), 64GB (powers of 1000), 1.5 TB, or plain bytes.
func ParseBytes(text string) (Bytes, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 63); err == nil { // exact, where humanize computes in floating point
		return Bytes(n), nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 || strings.Contains(text, ",") { // humanize reads 1,5GiB as 15GiB
		return 0, fmt.Errorf("%q is not a number of bytes; use 107374182400, 100GiB or 64GB", text)
	}
	return Bytes(n), nil
}

// Set reads text as ParseBytes does.
func (b *Bytes) Set(text string) (err error) {
	*b, err = ParseBytes(text)
	return err
}

// String returns the shortest exact form: 4GiB, 100GB, or plain bytes if no unit divides the number.
func (b Bytes) String() string {
	shortest := strconv.FormatInt(int64(b), 10)
	// humanize.IBytes rounds, but a printed configuration must give the same value again.
	for _, unit := range []string{"KiB", "MiB", "MB", "GiB", "GB", "TiB", "TB", "PiB", "PB"} {
		size, _ := ParseBytes("1" + unit)
		text := strconv.FormatInt(int64(b/size), 10) + unit
		if b != 0 && b%size == 0 && len(text) <= len(shortest) {
			shortest = text
		}
	}
	return shortest
}

// Type names the value in help texts.
func (b *Bytes) Type() string { return "bytes" }
