package analyze

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/plot"
	"github.com/gputap/gputap/cmd/internal/plot/smi"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/analysis"
)

// picture is the flags of gputap plot.
type picture struct {
	question
	file   string
	smi    string
	offset time.Duration
	size   plot.Size
}

// stacks are the words of plot's --by: what is one area.
var stacks = map[string]func(p *analysis.Process, g *analysis.Group) string{
	"process": func(p *analysis.Process, _ *analysis.Group) string { return fmt.Sprintf("%s (%d)", p.Comm, p.ID.PID) },
	"class":   func(_ *analysis.Process, g *analysis.Group) string { return g.Class.String() },
	"job":     func(p *analysis.Process, _ *analysis.Group) string { return cmp.Or(p.Job, "no job") },
	"host":    func(p *analysis.Process, _ *analysis.Group) string { return p.ID.Host },
}

const byProcess = "process"

// PlotCommand returns gputap plot.
func PlotCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plot", Short: "Draw the memory of processes in a recording as PNG or SVG",
		Long: "Draw the memory of processes in a recording as PNG or SVG.\n" + exitStatus,
		Example: `  gputap plot usage run.gputap -o usage.png
  gputap plot usage run.gputap -o usage.svg --by class --smi smi.csv
  gputap plot watermark run.gputap -o peaks.png --comm python3`,
	}
	cmd.AddCommand(
		plotCommand(p, "usage", "GPU memory over time, stacked", true),
		plotCommand(p, "watermark", "GPU memory of each process over time, with its highest point", false))
	return cmd
}

func plotCommand(p *app.Process, name, short string, stacked bool) *cobra.Command {
	c := &picture{question: question{p: p}, size: plot.DefaultSize}
	words := slices.Sorted(maps.Keys(stacks))
	cmd := &cobra.Command{
		Use: name + source.Argument, Short: short,
		Long: short + `. --smi draws what nvidia-smi reported as a dashed line, aligned by wall time:
  nvidia-smi --query-gpu=timestamp,index,memory.used --format=csv -lms 100 > smi.csv
` + exitStatus,
		Example: "  gputap plot " + name + " run.gputap -o chart.png\n" +
			"  gputap plot " + name + " run.gputap -o chart.svg --pid 4242 --width 800",
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if _, err := plot.FormatOf(c.file); err != nil {
				return app.Usage(err)
			}
			if stacks[c.by] == nil {
				return app.Usage(fmt.Errorf("--by %q: use %s", c.by, strings.Join(words, ", ")))
			}
			return c.parse([]string{""})
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.draw(cmd.Context(), args, stacked) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&c.file, "output", "o", "", "file to write, .png or .svg")
	if c.by = byProcess; stacked {
		flags.StringVar(&c.by, "by", byProcess, "what is one area: "+strings.Join(words, ", "))
	}
	flags.IntVar(&c.size.Width, "width", c.size.Width, "width in pixels")
	flags.IntVar(&c.size.Height, "height", c.size.Height, "height in pixels")
	flags.StringVar(&c.smi, "smi", "", "CSV file of nvidia-smi to draw on top")
	flags.DurationVar(&c.offset, "smi-offset", 0, "time to add to the times of nvidia-smi")
	c.AddFlags(cmd)
	_ = cmd.MarkFlagRequired("output") // the flag exists
	return cmd
}

// draw reads the recording and writes the chart.
func (c *picture) draw(ctx context.Context, args []string, stacked bool) error {
	s, err := c.Open(ctx, c.p, args, memoryKinds...)
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := readMemory(ctx, s, &c.Range, c.p.Log)
	if err != nil {
		return err
	}
	defer m.Close()
	chart, err := c.chart(m, stacked)
	if err != nil {
		return err
	}
	if err := chart.WriteFile(c.file, c.size); err != nil {
		return err
	}
	return source.Incomplete(m.Missing)
}

func (c *picture) chart(m *memory, stacked bool) (*plot.Chart, error) {
	list := m.selected(&c.Range)
	chart := &plot.Chart{Title: "GPU memory by " + c.by, YLabel: "GPU memory", Unit: plot.Bytes, Stacked: stacked,
		Subtitle: subtitle(list), Note: strings.Join(m.Missing, "; ")}
	for _, p := range list { // the first point of any
		err := p.Usage(nil, func(at time.Time, _ uint64) bool {
			if chart.Begin.IsZero() || at.Before(chart.Begin) {
				chart.Begin = at
			}
			return false
		})
		if err != nil {
			return nil, err
		}
	}
	parts := map[string][]iter.Seq[plot.Point]{}
	var failed error
	for _, p := range list {
		for _, name := range namesOf(p, stacks[c.by]) {
			parts[name] = append(parts[name], pointsOf(p, name, stacks[c.by], chart.Begin, &failed))
		}
		if !stacked || len(list) == 1 {
			if err := mark(chart, p); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		chart.Series = append(chart.Series, plot.Series{Name: name, Step: true, Points: sum(parts[name])})
	}
	return chart, cmp.Or(failed, c.overlay(chart))
}

// overlay adds the log of nvidia-smi.
func (c *picture) overlay(chart *plot.Chart) error {
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
		return fmt.Errorf("read the log of nvidia-smi %s: %w", c.smi, err)
	}
	for _, problem := range log.Problems() {
		fmt.Fprintf(c.p.Stderr, "%s: %s\n", c.smi, problem)
	}
	chart.Overlay = log.Align(chart.Begin, c.offset)
	return nil
}

func subtitle(list []*analysis.Process) string {
	hosts := map[string]bool{}
	for _, p := range list {
		hosts[p.ID.Host] = true
	}
	if names := slices.Sorted(maps.Keys(hosts)); len(names) == 1 {
		return "host " + names[0]
	}
	return app.Plural(uint64(len(list)), "process", "processes") + " on " +
		app.Plural(uint64(len(hosts)), "host", "hosts")
}

// namesOf lists the areas that a process is part of.
func namesOf(p *analysis.Process, name func(*analysis.Process, *analysis.Group) string) (names []string) {
	for i := range p.Groups {
		names = append(names, name(p, &p.Groups[i]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pointsOf yields the memory of a process that belongs to an area.
func pointsOf(p *analysis.Process, area string, name func(*analysis.Process, *analysis.Group) string, begin time.Time,
	failed *error) iter.Seq[plot.Point] {
	return func(yield func(plot.Point) bool) {
		goOn := true
		keep := func(g *analysis.Group) bool { return name(p, g) == area }
		err := p.Usage(keep, func(at time.Time, bytes uint64) bool {
			goOn = yield(plot.Point{At: at.Sub(begin), Value: float64(bytes)})
			return goOn
		})
		if *failed = cmp.Or(*failed, err); goOn && !p.Ended().IsZero() {
			yield(plot.Point{At: p.Ended().Sub(begin)})
		}
	}
}

// sum adds step functions, a point at a time.
func sum(parts []iter.Seq[plot.Point]) iter.Seq[plot.Point] {
	if len(parts) == 1 {
		return parts[0]
	}
	return func(yield func(plot.Point) bool) {
		type part struct {
			next  func() (plot.Point, bool)
			head  plot.Point
			value float64
		}
		var open []*part
		total := 0.0
		for _, points := range parts {
			next, stop := iter.Pull(points)
			defer stop()
			if head, more := next(); more {
				open = append(open, &part{next, head, 0})
			}
		}
		for len(open) > 0 {
			first := slices.MinFunc(open, func(a, b *part) int { return cmp.Compare(a.head.At, b.head.At) })
			total += first.head.Value - first.value
			if !yield(plot.Point{At: first.head.At, Value: total}) {
				return
			}
			first.value = first.head.Value
			head, more := first.next()
			if first.head = head; !more {
				open = slices.DeleteFunc(open, func(p *part) bool { return p == first })
			}
		}
	}
}

// mark adds the watermark of a process: of all its GPUs together.
func mark(chart *plot.Chart, p *analysis.Process) error {
	var highest plot.Point
	err := p.Usage(nil, func(at time.Time, bytes uint64) bool {
		if v := float64(bytes); v > highest.Value {
			highest = plot.Point{At: at.Sub(chart.Begin), Value: v}
		}
		return true
	})
	if highest.Value > 0 {
		chart.Marks = append(chart.Marks, plot.Mark{At: highest.At, Value: highest.Value, Text: "watermark"})
	}
	return err
}
