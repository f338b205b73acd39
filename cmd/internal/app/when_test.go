package app

import (
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 2*3600)
	now := time.Date(2026, 3, 1, 2, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "10m": "2026-03-01T02:20:00+02:00", "2026-01-02T15:04:05Z": "2026-01-02T15:04:05Z",
		"02:30": "2026-03-01T02:30:00+02:00", "02:30:01": "2026-02-28T02:30:01+02:00",
		"23:00":            "2026-02-28T23:00:00+02:00",
		"2026-02-03 04:05": "2026-02-03T04:05:00+02:00", "2026-02-03 04:05:06": "2026-02-03T04:05:06+02:00",
		"-10m": "", "25:00": "", "yesterday": "",
	} {
		at, err := ParseTime(text, now)
		if got := at.Format(time.RFC3339); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
}
