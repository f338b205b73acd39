package plot

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestTimeAxis(t *testing.T) {
	for _, test := range []struct {
		name     string
		begin    time.Time
		from, to time.Duration
		title    string
		labels   string
		mark     time.Duration
		marked   string
	}{
		{"nanoseconds", time.Time{}, 0, 900, "Time since start (ns)", "0 200 400 600 800", 123, "123 ns"},
		{"microseconds", time.Time{}, 0, 300 * time.Microsecond, "Time since start (µs)",
			"0 50 100 150 200 250 300", 123400, "123.4 µs"},
		{"milliseconds", time.Time{}, 0, time.Second, "Time since start (ms)",
			"0 200 400 600 800 1000", 12345678, "12.5 ms"},
		{"seconds", time.Time{}, 0, 100 * time.Second, "Time since start (s)",
			"0 15 30 45 60 75 90", 12345 * time.Millisecond, "12.35 s"},
		{"before the start", time.Time{}, -10 * time.Second, 20 * time.Second, "Time since start (s)",
			"-10 -5 0 5 10 15 20", -12345 * time.Millisecond, "-12.34 s"},
		{"minutes", time.Time{}, 0, 40 * time.Minute, "Time since start (mm:ss)",
			"00:00 05:00 10:00 15:00 20:00 25:00 30:00 35:00 40:00", 754 * time.Second, "12:34"},
		{"hours", time.Time{}, 0, 6 * time.Hour, "Time since start (h:mm:ss)",
			"0:00:00 1:00:00 2:00:00 3:00:00 4:00:00 5:00:00 6:00:00", 2*time.Hour + 3*time.Minute, "2:03:00"},
		{"days", time.Time{}, 0, 5 * day, "Time since start (h)", "0 24 48 72 96 120", 36 * time.Hour, "36 h"},
		{"wall clock", berlin(19, 0, 7), 0, time.Minute, "Time (2026-11-24, UTC+01:00)",
			"19:00:10 19:00:20 19:00:30 19:00:40 19:00:50 19:01:00", 1234 * time.Millisecond, "19:00:08.25"},
		{"in UTC", berlin(19, 0, 7).UTC(), 0, 40 * time.Millisecond, "Time (2026-11-24, UTC)",
			"18:00:07.00 18:00:07.01 18:00:07.02 18:00:07.03 18:00:07.04", 1234567, "18:00:07.00124"},
		{"past midnight", berlin(23, 50, 0), 0, 20 * time.Minute, "Time (2026-11-24 to 2026-11-25, UTC+01:00)",
			"23:50:00/2026-11-24 23:55:00/2026-11-24 00:00:00/2026-11-25 00:05:00/2026-11-25 00:10:00/2026-11-25",
			11 * time.Minute, "2026-11-25 00:01:00"},
		{"a week", berlin(12, 0, 0), 0, 7 * day, "Time (2026-11-24 to 2026-12-01, UTC+01:00)",
			"2026-11-25 2026-11-27 2026-11-29 2026-12-01", day, "2026-11-25 12:00:00"},
		{"decades", time.Time{}, 0, farthest, "Time since start (h)",
			"0 87600 175200 262800 350400 438000 525600 613200", 0, "0 h"},
	} {
		t.Run(test.name, func(t *testing.T) {
			axis := newTimeAxis(test.begin, test.from, test.to, 600, func(label string) float64 {
				return max(75, 10*float64(len(label)))
			})
			var labels []string
			for _, at := range axis.ticks() {
				label := axis.label(at)
				if date := axis.date(at); date != "" {
					label += "/" + date
				}
				labels = append(labels, label)
			}
			if got := strings.Join(labels, " "); got != test.labels || axis.title() != test.title {
				t.Errorf("got %q of %q", got, axis.title())
			}
			if got := axis.format(test.mark); got != test.marked {
				t.Errorf("mark: got %q, want %q", got, test.marked)
			}
		})
	}
}

func TestTimeAxisEndsForEveryRange(t *testing.T) {
	for span := time.Duration(1); span < math.MaxInt64/3; span += span/3 + 1 {
		for _, begin := range []time.Time{{}, berlin(1, 2, 3), time.Unix(-1<<40, 0), time.Unix(1<<40, 0)} {
			width := func(label string) float64 { return 8 * float64(len(label)) }
			axis := newTimeAxis(begin, -span/7, span, 600, width)
			if n := len(axis.ticks()); n > 21 {
				t.Errorf("%d ticks in %v", n, span)
			}
		}
	}
}
