package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

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
