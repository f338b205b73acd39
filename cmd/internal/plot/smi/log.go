package smi

import (
	"fmt"
	"iter"
	"time"

	"github.com/gputap/gputap/cmd/internal/plot"
)

// Log is what nvidia-smi reported.
type Log struct {
	GPUs  []GPU     // in the order of their first rows
	Start time.Time // the first time of a row; zero if rows have no time

	Skipped      int    // rows that cannot be read
	FirstSkipped string // the number of the first one's line, and its reason
	Backward     int    // rows that were left out because their time is before that of the row before
	Ambiguous    int    // rows at the same time as the row before: several GPUs without uuid or index
}

// GPU is one card. What the rows do not tell is empty; an unknown Index is -1.
type GPU struct {
	UUID    string
	Index   int
	Name    string
	Samples []Sample // in the order of time
}

// Sample is one row: the time since Log.Start, the used memory of the whole card in bytes, and its utilization in
// percent, or -1.
type Sample struct {
	At          time.Duration
	Used        int64
	Utilization int
}

// End returns the time of the last row; zero if rows have no time.
func (l Log) End() (end time.Time) {
	for _, g := range l.GPUs {
		if n := len(g.Samples); n > 0 && !l.Start.IsZero() {
			if at := l.Start.Add(g.Samples[n-1].At); at.After(end) {
				end = at
			}
		}
	}
	return end
}

// Label returns a name for the legend.
func (g GPU) Label() string {
	switch {
	case g.Index >= 0:
		return fmt.Sprintf("nvidia-smi GPU %d", g.Index)
	case g.UUID != "":
		return "nvidia-smi " + g.UUID
	default:
		return "nvidia-smi"
	}
}

// Align returns the used memory of each GPU as an overlay of a chart. If both the log and the chart know the wall
// clock, they are aligned by it; otherwise the log starts at the begin of the chart. Offset is added to the times.
func (l Log) Align(begin time.Time, offset time.Duration) []plot.Series {
	if !begin.IsZero() && !l.Start.IsZero() {
		offset += l.Start.Sub(begin)
	}
	series := make([]plot.Series, len(l.GPUs))
	for i, g := range l.GPUs {
		series[i] = plot.Series{Name: g.Label(), Step: true, Ends: true, Points: g.memory(offset)}
	}
	return series
}

func (g GPU) memory(offset time.Duration) iter.Seq[plot.Point] {
	return func(yield func(plot.Point) bool) {
		for _, s := range g.Samples {
			if !yield(plot.Point{At: s.At + offset, Value: float64(s.Used)}) {
				return
			}
		}
	}
}

// Problems returns what is wrong with the log, a sentence each.
func (l Log) Problems() (problems []string) {
	if l.Skipped > 0 {
		problems = append(problems, fmt.Sprintf("%s cannot be read; the first one is %s.",
			rows(l.Skipped), l.FirstSkipped))
	}
	if l.Backward > 0 {
		problems = append(problems, rows(l.Backward)+" left out: earlier than the row before.")
	}
	if l.Ambiguous > 0 {
		problems = append(problems, rows(l.Ambiguous)+" at the time of the row before: several GPUs may be mixed; "+
			"add uuid to --query-gpu.")
	}
	return problems
}

func rows(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}
