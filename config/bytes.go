package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Bytes is an amount that files, variables and flags may give with a unit. It is a pflag.Value.
type Bytes int64

// units with an i are powers of 1024.
var units = map[string]float64{
	"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
}

// ParseBytes reads an amount as people write it: 64GiB, 1.5 TB, or plain bytes.
func ParseBytes(text string) (Bytes, error) {
	wrong := fmt.Errorf("%q is no amount: use bytes or a unit, as in 107374182400, 100GiB or 64GB", text)
	digits := strings.TrimRight(strings.TrimSpace(text), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit, known := units[strings.ToLower(strings.TrimSpace(text)[len(digits):])]
	digits = strings.TrimSpace(digits)
	if !known || strings.Trim(digits, "0123456789.") != "" {
		return 0, wrong
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && unit == 1 {
		return Bytes(n), nil
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n*unit >= math.MaxInt64 {
		return 0, wrong
	}
	return Bytes(n * unit), nil
}

// Set takes what ParseBytes reads.
func (b *Bytes) Set(text string) (err error) {
	*b, err = ParseBytes(text)
	return err
}

// String is exact, and as short as it can be: 4GiB, 100GB, or plain bytes where no unit fits.
func (b Bytes) String() string {
	shortest := strconv.FormatInt(int64(b), 10)
	for _, unit := range []string{"KiB", "MiB", "MB", "GiB", "GB", "TiB", "TB", "PiB", "PB"} {
		size := Bytes(units[strings.ToLower(unit)])
		if text := strconv.FormatInt(int64(b/size), 10) + unit; b != 0 && b%size == 0 && len(text) <= len(shortest) {
			shortest = text
		}
	}
	return shortest
}

// Type is what help calls the value.
func (b *Bytes) Type() string { return "bytes" }

// parseBytes is a hook of decoding.
func parseBytes(from, to reflect.Type, data any) (any, error) {
	if text, ok := data.(string); ok && to == reflect.TypeFor[Bytes]() {
		return ParseBytes(text)
	}
	return data, nil
}
