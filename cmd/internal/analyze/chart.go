package analyze

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/plot"
	"github.com/gputap/gputap/cmd/internal/plot/smi"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/schema"
)

// memoryChart draws the memory of one source.
func (c *picture) memoryChart(m *memory, stacked bool) (*plot.Chart, error) {
	list := m.split(&c.Range, c.by)
	names := newNames(list)
	var failed error
	chart := &plot.Chart{Title: "GPU memory by " + c.by, YLabel: "GPU memory", Unit: plot.Bytes, Stacked: stacked,
		Subtitle: subtitle(list, names), Note: strings.Join(m.Missing, "; "), Failed: func() error { return failed }}
	switch {
	case c.by == byGPU:
		chart.Title = "GPU memory by GPU"
	case c.by == byTorch:
		chart.Title = "GPU memory of PyTorch's allocator"
	case !stacked:
		chart.Title = "GPU memory of each process, with its peak"
	}
	ends := endsOf(m.selected(&c.Range))
	var err error
	if chart.Begin, err = firstPoint(list); err != nil {
		return nil, err
	}
	parts, whole := map[string][]iter.Seq[plot.Point]{}, []iter.Seq[plot.Point]{}
	for _, p := range list {
		for _, name := range names.of(p, c.by) {
			keep := func(g *analysis.Group) bool { return areas[c.by](names, p, g) == name }
			parts[name] = append(parts[name], pointsOf(p, keep, chart.Begin, ends[p.ID], &failed))
		}
		whole = append(whole, pointsOf(p, nil, chart.Begin, ends[p.ID], &failed))
	}
	if stacked {
		mark(chart, sum(whole), "watermark")
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		line := plot.Series{Name: name, Step: true, Points: sum(parts[name]), Mark: name}
		if len(parts) == 1 {
			line.Mark = "watermark"
		}
		chart.Series = append(chart.Series, line)
	}
	return chart, c.overlay(chart, m, list)
}

// runsChart draws the memory of several sources as lines that begin together.
func (c *picture) runsChart(names []string, runs []*memory) (*plot.Chart, error) {
	var failed error
	chart := &plot.Chart{Title: "GPU memory of each run", YLabel: "GPU memory", Unit: plot.Bytes,
		Failed: func() error { return failed }}
	for i, m := range runs {
		list := m.selected(&c.Range)
		begin, err := firstPoint(list)
		if err != nil {
			return nil, err
		}
		ends := endsOf(list)
		var parts []iter.Seq[plot.Point]
		for _, p := range list {
			parts = append(parts, pointsOf(p, nil, begin, ends[p.ID], &failed))
		}
		chart.Series = append(chart.Series, plot.Series{Name: names[i], Step: true, Points: sum(parts),
			Mark: names[i]})
		for _, text := range m.Missing {
			chart.Note = strings.TrimPrefix(chart.Note+"; "+names[i]+": "+text, "; ")
		}
	}
	return chart, nil
}

// firstPoint returns the time of the first change of any process.
func firstPoint(list []*analysis.Process) (begin time.Time, err error) {
	for _, p := range list {
		err := p.Usage(nil, func(at time.Time, _ uint64) bool {
			if begin.IsZero() || at.Before(begin) {
				begin = at
			}
			return false
		})
		if err != nil {
			return begin, err
		}
	}
	return begin, nil
}

// lastPoint returns the time of the last change of any process, or of its end.
func lastPoint(list []*analysis.Process) (end time.Time, err error) {
	for _, p := range list {
		last := p.Ended()
		err := p.Usage(nil, func(at time.Time, _ uint64) bool {
			if at.After(last) {
				last = at
			}
			return true
		})
		if err != nil {
			return end, err
		}
		if last.After(end) {
			end = last
		}
	}
	return end, nil
}

// endsOf returns when the processes ended that had not freed all.
func endsOf(list []*analysis.Process) map[schema.ProcessID]time.Time {
	ends := map[schema.ProcessID]time.Time{}
	for _, p := range list {
		ends[p.ID] = p.Ended()
	}
	return ends
}

// makeLog is how users make a log that --smi reads.
const makeLog = "nvidia-smi --query-gpu=timestamp,index,memory.used --format=csv -lms 100 > smi.csv"

// overlay adds the log of nvidia-smi. If nothing of it is drawn, m lacks it.
func (c *picture) overlay(chart *plot.Chart, m *memory, list []*analysis.Process) error {
	if c.smi == "" {
		return nil
	}
	file, err := os.Open(c.smi)
	if err != nil {
		return fmt.Errorf("read the log of nvidia-smi: %w", err)
	}
	defer file.Close()
	log, err := smi.Parse(file, smi.Options{})
	if err != nil {
		return fmt.Errorf("read the log of nvidia-smi %s: %w; make the log with %s", c.smi, err, makeLog)
	}
	for _, problem := range log.Problems() {
		fmt.Fprintf(c.p.Stderr, "%s: %s\n", c.smi, problem)
	}
	chart.Overlay = log.Align(chart.Begin, c.offset)
	if n := len(chart.Overlay); n > 1 { // the areas are of all GPUs, too
		var parts []iter.Seq[plot.Point]
		for i := range chart.Overlay {
			parts = append(parts, chart.Overlay[i].Points)
		}
		chart.Overlay = []plot.Series{{Name: fmt.Sprintf("nvidia-smi, %d GPUs", n), Step: true, Ends: true,
			Points: sum(parts)}}
	}
	end, err := lastPoint(list)
	first, last := log.Start.Add(c.offset), log.End().Add(c.offset)
	if log.Start.IsZero() || len(list) == 0 || !last.Before(chart.Begin) && !first.After(end) {
		return err
	}
	text := fmt.Sprintf("%s: nothing of it is drawn: it is of %s to %s in the zone of this machine, and the chart of "+
		"%s to %s; set TZ to the zone of nvidia-smi, or use --smi-offset", c.smi, clockText(first), clockText(last),
		clockText(chart.Begin), clockText(end))
	if !m.wall {
		text = fmt.Sprintf("%s: nothing of it is drawn: the export does not tell when its session began; use "+
			"--smi-offset=%s to draw the first row of the log at the first change of memory, and add the time between "+
			"them if you know it", c.smi, chart.Begin.Sub(log.Start))
	}
	m.Missing = append(m.Missing, text)
	return err
}

func clockText(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -0700") }

func subtitle(list []*analysis.Process, names *names) string {
	hosts := map[string]bool{}
	for _, p := range list {
		hosts[names.host(p)] = true
	}
	if names := slices.Sorted(maps.Keys(hosts)); len(names) == 1 {
		return "host " + names[0]
	}
	return app.Plural(uint64(len(list)), "process", "processes") + " on " +
		app.Plural(uint64(len(hosts)), "host", "hosts")
}

// pointsOf yields the memory of a process in the groups that keep selects; its last point is that of its end.
func pointsOf(p *analysis.Process, keep func(*analysis.Group) bool, begin, end time.Time, failed *error,
) iter.Seq[plot.Point] {
	return func(yield func(plot.Point) bool) {
		goOn := true
		err := p.Usage(keep, func(at time.Time, bytes uint64) bool {
			goOn = yield(plot.Point{At: at.Sub(begin), Value: float64(bytes)})
			return goOn
		})
		if *failed = cmp.Or(*failed, err); goOn && !end.IsZero() {
			yield(plot.Point{At: end.Sub(begin)})
		}
	}
}

// mark adds the highest of some points.
func mark(chart *plot.Chart, points iter.Seq[plot.Point], text string) {
	var highest plot.Point
	for p := range points {
		if p.Value > highest.Value {
			highest = p
		}
	}
	if highest.Value > 0 {
		chart.Marks = append(chart.Marks, plot.Mark{At: highest.At, Value: highest.Value, Text: text})
	}
}
