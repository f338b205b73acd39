package analyze

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Launches are the kernels and graphs that a process launched.
type Launches struct {
	Who
	Launches      map[string]uint64   `json:"launches"` // by kernel, those of graphs included
	GraphLaunches uint64              `json:"graph_launches"`
	TopKernels    []report.KernelRate `json:"top_kernels"`
	Graphs        []report.GraphRate  `json:"graphs"`
	Gaps          []report.LaunchGaps `json:"launch_gaps"`
}

// Copies are the copies and sets of a process.
type Copies struct {
	Who
	Copies map[string]*report.Copy `json:"copies"` // by direction
	Groups []report.CopyGroup      `json:"copy_groups"`
	Waits  report.Waits            `json:"waits"`
}

// Rates is the answer about launches or copies. Its keys are those of gputap run.
type Rates[T any] struct {
	Processes []T      `json:"processes"`
	Complete  bool     `json:"complete"`
	Missing   []string `json:"missing"`
	Notes     []string `json:"notes"`
}

// readRates folds the events of a range, which these folds count from zero on. It also returns sentences about missing
// data, such as absent batches of the given kinds.
func readRates(ctx context.Context, s *source.Source, r *Range, create func() consumer.Stateful, kinds []schema.Kind,
	log *slog.Logger) (*report.Snapshot, []string, error) {
	replays, batches := map[*moved.Lane]*consumer.Replay{}, source.NewBatches(r)
	for m, err := range s.InOrder(ctx, recording.Filter{Since: r.Since, Until: r.Until}) {
		if err != nil {
			return nil, nil, fmt.Errorf("analyze %s: %w", s.Name, err)
		}
		if replays[m.Lane] == nil {
			replays[m.Lane] = consumer.NewReplay(m.Lane.Shard(), create(), false, log)
		}
		replays[m.Lane].Apply(&m.Message)
		if isOf(&m.Message, kinds) {
			batches.Of(m.Recorded) // counts what is missing
		}
	}
	all := report.New(time.Now())
	for _, p := range replays {
		all.Add(p.Fold(), nil) // these folds need no reader
	}
	all.Processes = slices.DeleteFunc(all.Processes, func(p *report.Process) bool {
		return !r.Process(&query.Subject{Cluster: p.Cluster, Host: p.Host, User: p.User, Comm: p.Comm, Job: p.Job,
			UID: p.UID, PID: p.PID})
	})
	var missing []string
	if len(all.Processes) == 0 {
		var err error
		if missing, err = s.Unselected(ctx, r); err != nil {
			return nil, nil, fmt.Errorf("analyze %s: %w", s.Name, err)
		}
	}
	return all, slices.Concat(missing, s.Missing(), batches.Missing()), nil
}

// isOf reports whether a message is of one of these kinds.
func isOf(m *recording.Message, kinds []schema.Kind) bool {
	word := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	return slices.ContainsFunc(kinds, func(k schema.Kind) bool { return k.String() == word })
}

func whoIs(p *report.Process) Who {
	return Who{p.PID, p.Host, p.Cluster, app.Time{Time: p.Start}, p.Comm, p.UID, p.User, p.Job, p.Rank}
}

func launchesCommand(p *app.Process) *cobra.Command {
	create := func() consumer.Stateful { return launch.New(launch.Config{}) }
	return ratesCommand(p, "launches", "The kernels and graphs of each process", schema.KindLaunch, create,
		func(one *report.Process) (Launches, uint64) {
			l := Launches{whoIs(one), one.Launches, one.GraphLaunches, one.TopKernels, one.Graphs, one.Gaps}
			total := uint64(0)
			for _, n := range one.Launches {
				total += n
			}
			return l, total
		}, writeLaunches, launchRows)
}

func bandwidthCommand(p *app.Process) *cobra.Command {
	create := func() consumer.Stateful { return bandwidth.New(bandwidth.Config{}) }
	return ratesCommand(p, "bandwidth", "The copies and sets of each process", schema.KindCopy, create,
		func(one *report.Process) (Copies, uint64) {
			c, total := Copies{whoIs(one), one.Copies, one.CopyGroups, one.Waits}, uint64(0)
			for _, of := range one.Copies {
				total += of.Bytes
			}
			return c, total
		}, writeCopies, copyRows)
}

// ratesCommand returns a command that shows the processes with a measure above 0, the largest first.
func ratesCommand[T any](p *app.Process, name, short string, kind schema.Kind, create func() consumer.Stateful,
	of func(*report.Process) (T, uint64), text func(io.Writer, []T), rows func([]T) [][]string) *cobra.Command {
	q := &question{p: p}
	cmd := &cobra.Command{
		Use: name + source.Argument, Short: short, Long: short + ", within the range.\n" + exitStatus,
		Example: "  gputap analyze " + name + " run.gputap\n" +
			"  gputap analyze " + name + " run.gputap --comm python3 -o json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := q.Open(cmd.Context(), p, args, create().Kinds()...)
			if err != nil {
				return err
			}
			defer s.Close()
			all, missing, err := readRates(cmd.Context(), s, &q.Range, create, create().Kinds(), p.Log)
			if err != nil {
				return err
			}
			missing = append(missing, s.Unrecorded(kind)...)
			r := Rates[T]{[]T{}, len(missing) == 0, append([]string{}, missing...), s.Notes(kind)}
			measures := map[*report.Process]uint64{}
			for _, one := range all.Processes {
				_, measures[one] = of(one)
			}
			slices.SortStableFunc(all.Processes, func(a, b *report.Process) int {
				return cmp.Or(cmp.Compare(measures[b], measures[a]), new(whoIs(a)).compare(new(whoIs(b))))
			})
			for _, one := range all.Processes {
				if measures[one] > 0 {
					shown, _ := of(one)
					r.Processes = append(r.Processes, shown)
				}
			}
			switch q.out {
			case "json":
				out := json.NewEncoder(p.Stdout)
				out.SetEscapeHTML(false) // kernel names have angle brackets
				err = out.Encode(r)
			case "csv":
				err = writeTable(p.Stdout, rows(r.Processes))
			default:
				out := &app.Output{Writer: p.Stdout}
				text(out, r.Processes)
				err = out.Err
			}
			return cmp.Or(err, source.Incomplete(missing))
		},
	}
	q.flags(cmd, "text", "json", "csv")
	q.failFlag(cmd, nil)
	return cmd
}

func writeLaunches(to io.Writer, list []Launches) {
	table := app.NewTable("HOST", "PID", "COMMAND", "LAUNCHES", "PER SECOND", "SHARE", "KERNEL")
	clusters := severalClusters(list, func(l *Launches) *Who { return &l.Who })
	for i := range list {
		l := &list[i]
		for _, k := range l.TopKernels[:min(maxRows, len(l.TopKernels))] {
			table.Row(l.place(clusters), l.PID, l.Comm, k.Launches, app.Rate(k.PerSecond),
				fmt.Sprintf("%.1f %%", 100*k.Share), app.Shorten(k.Kernel, 60))
		}
	}
	table.Write(to)
}

func writeCopies(to io.Writer, list []Copies) {
	table := app.NewTable("HOST", "PID", "COMMAND", "GPU", "DIRECTION", "SIZE", "HOST MEMORY", "CALLS", "BYTES", "RATE")
	clusters := severalClusters(list, func(c *Copies) *Who { return &c.Who })
	for i := range list {
		c := &list[i]
		for _, g := range c.groups() {
			rate := "-"
			if t := g.Throughput; t != nil {
				rate = app.Rate(t.BytesPerSecond/1e9) + " GB/s"
				if t.AtLeast {
					rate = "≥ " + rate
				}
			}
			table.Row(c.place(clusters), c.PID, c.Comm, fmt.Sprintf("%.12s", cmp.Or(g.GPU, "-")), g.Direction,
				cmp.Or(g.Size, "-"), cmp.Or(g.HostMemory, "-"), g.Calls, app.Amount(g.Bytes), rate)
		}
	}
	table.Write(to)
}
