package app

import (
	"fmt"
	"time"
)

// ParseTime reads RFC 3339, or a duration before now. "" is the zero time.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is not a time; use 2026-01-02T15:04:05Z, or 10m for ten minutes ago", text)
	}
	return at, nil
}
