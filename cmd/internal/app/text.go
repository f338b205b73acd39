package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes writes an amount for a person: exact below 1 KiB, two decimals above, in steps of 1024.
func Bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n)
	unit := ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		value /= 1024
		if value < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.2f %s", value, unit)
}

// units of ParseBytes: those with an i are powers of 1024.
var units = map[string]float64{
	"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
}

// ParseBytes reads an amount as people write it: 64GiB, 1.5 TB, or plain bytes.
func ParseBytes(text string) (int64, error) {
	wrong := fmt.Errorf("%q is no amount: use bytes or a unit, as in 107374182400, 100GiB or 64GB", text)
	digits := strings.TrimRight(strings.TrimSpace(text), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit, known := units[strings.ToLower(strings.TrimSpace(text)[len(digits):])]
	digits = strings.TrimSpace(digits)
	if !known || strings.Trim(digits, "0123456789.") != "" {
		return 0, wrong
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && unit == 1 {
		return n, nil
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n*unit >= math.MaxInt64 {
		return 0, wrong
	}
	return int64(n * unit), nil
}

// ByteFlag is a flag that takes what ParseBytes reads.
type ByteFlag int64

// Set is pflag's.
func (b *ByteFlag) Set(text string) error {
	n, err := ParseBytes(text)
	*b = ByteFlag(n)
	return err
}

// String is plain bytes; nothing for none.
func (b *ByteFlag) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type is what help calls the value.
func (b *ByteFlag) Type() string { return "bytes" }
