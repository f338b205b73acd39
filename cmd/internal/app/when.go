package app

import (
	"fmt"
	"time"
)

// clockForms are times of day in the zone of this machine, dateForms times of a day there.
var (
	clockForms = []string{"15:04", "15:04:05"}
	dateForms  = []string{"2006-01-02 15:04", "2006-01-02 15:04:05"}
)

// ParseTime reads RFC 3339, a duration before now, a date with a time of this machine's zone, or a time of day there:
// the last one that is not in the future. "" is the zero time.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, form := range dateForms {
		if at, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return at, nil
		}
	}
	for _, form := range clockForms {
		clock, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0,
			now.Location())
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time; use 2026-01-02T15:04:05Z, 15:04 in the zone of this machine, or "+
		"10m for ten minutes ago", text)
}
