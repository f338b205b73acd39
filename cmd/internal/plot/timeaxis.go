package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	day         = 24 * time.Hour
	longestStep = 36500 * day
)

// timeSteps are the distances of ticks from a second on. Below, they are 1, 2 and 5 times a power of ten.
var timeSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 365 * day, 3650 * day, longestStep,
}

// timeStep returns the least step that is at least d.
func timeStep(d time.Duration) time.Duration {
	if d <= time.Second/2 {
		return time.Duration(math.Round(decimalStep(float64(max(1, d)))))
	}
	for _, step := range timeSteps {
		if step >= d {
			return step
		}
	}
	return longestStep
}

// timeAxis is the axis of time, from and to relative to begin. A zero begin counts the time since the start.
type timeAxis struct {
	begin    time.Time
	from, to time.Duration
	step     time.Duration
}

// newTimeAxis returns the axis with the least step for which labels fit: width returns the pixels that a label needs,
// and pixels is the length of the axis.
func newTimeAxis(begin time.Time, from, to time.Duration, pixels float64, width func(string) float64) timeAxis {
	a := timeAxis{begin: begin, from: from, to: to}
	span := to - from
	for step := timeStep(span/20 + 1); ; step = timeStep(step + 1) {
		a.step = step
		widest := 0.0
		for _, at := range a.ticks() {
			widest = max(widest, width(a.label(at)))
		}
		if widest <= float64(step)/float64(span)*pixels || step > span || step == longestStep {
			return a
		}
	}
}

// ticks returns the times with a tick. On a wall clock, they are round in its zone.
func (a timeAxis) ticks() (ticks []time.Duration) {
	var offset time.Duration // of time zero from a round time
	if !a.begin.IsZero() {
		_, seconds := a.begin.Zone()
		local := a.begin.Add(time.Duration(seconds) * time.Second)
		offset = local.Sub(time.Unix(0, 0)) % a.step
	}
	first := a.from + offset
	at := first - first%a.step - offset
	if at < a.from {
		at += a.step
	}
	for ; at <= a.to && len(ticks) < 1000; at += a.step {
		ticks = append(ticks, at)
	}
	return ticks
}

// wall returns the wall clock at a time of the axis.
func (a timeAxis) wall(at time.Duration) time.Time { return a.begin.Add(at) }

// label returns the text of a tick.
func (a timeAxis) label(at time.Duration) string {
	if !a.begin.IsZero() {
		if a.step >= day {
			return a.wall(at).Format("2006-01-02")
		}
		return a.wall(at).Format("15:04:05" + fraction(a.step))
	}
	unit, _, clock := a.elapsed()
	if clock == "" {
		return strconv.FormatFloat(round(float64(at)/float64(unit), 9), 'f', -1, 64)
	}
	return clockText(at, clock, "")
}

// date returns the date of a tick if the axis shows more than one date and labels show the time of day.
func (a timeAxis) date(at time.Duration) string {
	if a.begin.IsZero() || a.step >= day || !a.severalDates() {
		return ""
	}
	return a.wall(at).Format("2006-01-02")
}

func (a timeAxis) severalDates() bool {
	return a.wall(a.from).Format(time.DateOnly) != a.wall(a.to).Format(time.DateOnly)
}

// elapsed returns how an axis without wall clock shows times: in a unit with a name, or as a clock.
func (a timeAxis) elapsed() (unit time.Duration, name, clock string) {
	switch span := max(a.to, -a.from); {
	case span < 2*time.Microsecond:
		return 1, "ns", ""
	case span < 2*time.Millisecond:
		return time.Microsecond, "µs", ""
	case span < 2*time.Second:
		return time.Millisecond, "ms", ""
	case span <= 3*time.Minute:
		return time.Second, "s", ""
	case span < time.Hour:
		return time.Second, "mm:ss", "m"
	case span < 2*day:
		return time.Second, "h:mm:ss", "h"
	default:
		return time.Hour, "h", ""
	}
}

// title returns the label of the axis with its unit, or with the date and the zone.
func (a timeAxis) title() string {
	if a.begin.IsZero() {
		_, name, _ := a.elapsed()
		return "Time since start (" + name + ")"
	}
	zone := "UTC"
	if _, seconds := a.begin.Zone(); seconds != 0 {
		zone = a.begin.Format("UTC-07:00")
	}
	dates := a.wall(a.from).Format(time.DateOnly)
	if a.severalDates() {
		dates += " to " + a.wall(a.to).Format(time.DateOnly)
	}
	return "Time (" + dates + ", " + zone + ")"
}

// format returns a time for a label in the chart: with the decimals that the width of the axis can tell apart.
func (a timeAxis) format(at time.Duration) string {
	digit := timeStep((a.to - a.from) / 2000)
	at = at.Round(min(digit, time.Second))
	if !a.begin.IsZero() {
		layout := "15:04:05" + fraction(digit)
		if a.severalDates() {
			layout = "2006-01-02 " + layout
		}
		return a.wall(at).Format(layout)
	}
	unit, name, clock := a.elapsed()
	if clock != "" {
		return clockText(at, clock, fraction(digit))
	}
	return strconv.FormatFloat(round(float64(at)/float64(unit), 9), 'f', -1, 64) + " " + name
}

// fraction returns the layout of the fraction of seconds that shows a step: "", ".0", ".00", and so on.
func fraction(step time.Duration) string {
	digits := 0
	for unit := time.Second; step%unit != 0; unit /= 10 {
		digits++
	}
	if digits == 0 {
		return ""
	}
	return "." + strings.Repeat("0", digits)
}

// clockText formats a time as m:ss or h:mm:ss, with the decimals of a layout such as ".00".
func clockText(at time.Duration, clock, decimals string) string {
	sign := ""
	if at < 0 {
		sign, at = "-", -at
	}
	seconds := at / time.Second
	text := fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
	if clock == "h" {
		text = fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return sign + text + time.Unix(0, int64(at%time.Second)).UTC().Format(decimals)
}

// round removes the error of a division.
func round(v float64, digits int) float64 {
	power := math.Pow10(digits)
	return math.Round(v*power) / power
}
