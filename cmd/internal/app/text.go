package app

import (
	"fmt"
	"strconv"
	"time"
)

// Bytes formats a number of bytes: exact below 1 KiB, else with two decimals in steps of 1024. It stays our own code,
// because humanize.IBytes rounds 70.25 MiB to 70 MiB.
func Bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n)
	unit := ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		value /= 1024
		if value < 1023.995 { // else two decimals round to 1024.00
			break
		}
	}
	return fmt.Sprintf("%.2f %s", value, unit)
}

// Age formats a duration in its largest unit: 4s, 12m, 3h, 5d.
func Age(d time.Duration) string {
	switch d = max(0, d); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// Plural formats a count with its noun: 1 host, 2 hosts.
func Plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// Shorten cuts a text that is longer than n bytes, and marks the cut with an ellipsis.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-1] + "…"
}

// Rate shows a rate with three digits or more, never with an exponent.
func Rate(perSecond float64) string {
	if perSecond >= 1000 {
		return fmt.Sprintf("%.0f", perSecond)
	}
	return fmt.Sprintf("%.3g", perSecond)
}
