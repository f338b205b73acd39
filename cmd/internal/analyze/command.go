package analyze

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/schema"
)

const (
	exitStatus = `
Exit status: 0 success; 1 an error; 2 wrong flags; 4 the data are incomplete, and the answer says what is missing;
5 NATS is unreachable.`

	// those of the commands with --fail-on
	failStatus = `
--fail-on takes MEASURE>LIMIT. leak: of the process with the most on all its GPUs; peak: the highest of any process on
one GPU; unmatched_frees and failed_calls: of all processes.

Exit status: 0 success; 1 an error; 2 wrong flags; 3 a condition of --fail-on holds; 4 the data are incomplete, and the
answer says what is missing; 5 NATS is unreachable.`
)

// Command returns gputap analyze.
func Command(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "analyze",
		Short: "Answer questions about a recording: peaks, curves and leaks of memory, launches, copies",
		Long: `Answer questions about the processes in a recording, or in a range of a bus if no FILE is given. The answer includes
memory that was live at the beginning, and names all that is unknown.

Exit status: 0 success; 1 an error; 2 wrong flags; 3 a condition of --fail-on holds; 4 the data are incomplete, and the
answer says what is missing; 5 NATS is unreachable.`,
		Example: `  gputap analyze watermark run.gputap
  gputap analyze usage run.gputap -o csv --step 1s
  gputap analyze leakage run.gputap --fail-on 'leak>100MiB'
  gputap analyze launches run.gputap --comm python3
  gputap analyze watermark --nats.url nats://bus:4222 --since 2026-01-02T03:00:00Z --until 2026-01-02T03:30:00Z
  gputap analyze diff good.gputap bad.gputap`,
	}
	cmd.AddCommand(memoryCommand(p, "watermark", "The most memory of each process, and what was live then",
		func(q *question, m *memory) error {
			r, err := m.watermark(&q.Range)
			return errors.Join(err, show(q, r, titlePeak))
		}))
	cmd.AddCommand(memoryCommand(p, "leakage", "What was never freed: live at the end, or when the process ended",
		func(q *question, m *memory) error {
			r, err := m.leakage(&q.Range)
			return errors.Join(err, show(q, r, "LIVE AT END"))
		}))
	cmd.AddCommand(usageCommand(p), launchesCommand(p), bandwidthCommand(p), diffCommand(p))
	return cmd
}

// question is one command line.
type question struct {
	p    *app.Process
	out  string
	by   string
	step time.Duration
	fail []string
	Range

	measures   []string // of --fail-on
	conditions []condition
}

func memoryCommand(p *app.Process, name, short string, answer func(*question, *memory) error) *cobra.Command {
	q := &question{p: p}
	cmd := &cobra.Command{
		Use: name + source.Argument, Short: short, Long: short + ".\n" + failStatus,
		Example: "  gputap analyze " + name + " run.gputap\n" +
			"  gputap analyze " + name + " run.gputap --pid 4242 -o json\n" +
			"  gputap analyze " + name + " --nats.url nats://bus:4222 --since 30m --until 10m --host gpu-7",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.run(cmd.Context(), args, func(m *memory) error { return answer(q, m) })
		},
	}
	q.flags(cmd, "text", "json", "csv")
	q.failFlag(cmd, memoryMeasures)
	return cmd
}

func usageCommand(p *app.Process) *cobra.Command {
	q := &question{p: p}
	names := slices.Sorted(maps.Keys(splits))
	cmd := &cobra.Command{
		Use: "usage" + source.Argument, Short: "The memory of each process over time: every change",
		Long: "The memory of each process over time: every change, or the highest of each --step.\n" + failStatus,
		Example: `  gputap analyze usage run.gputap -o json
  gputap analyze usage run.gputap -o csv --by class --step 1s
  gputap analyze usage run.gputap -o nsys-tsv --pid 4242    # the columns of the older scripts`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, known := splits[q.by]; !known {
				return app.Usage(fmt.Errorf("--by %q: use one of %s", q.by, strings.Join(names, ", ")))
			}
			if q.step < 0 {
				return app.Usage(fmt.Errorf("--step %s: use 0 or more", q.step))
			}
			return q.run(cmd.Context(), args, q.usage)
		},
	}
	q.flags(cmd, "text", "json", "csv", "nsys-tsv")
	q.failFlag(cmd, memoryMeasures)
	cmd.Flags().StringVar(&q.by, "by", byGPU, "split the memory of a GPU by "+strings.Join(names, ", "))
	cmd.Flags().DurationVar(&q.step, "step", 0, "show the highest amount of each step of time, instead of every change")
	return cmd
}

func (q *question) flags(cmd *cobra.Command, formats ...string) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&q.out, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	flags.StringVar(&q.out, "format", formats[0], "same as --output")
	q.AddFlags(cmd)
	for _, flag := range []string{"output", "format"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return q.parse(formats) }
}

// parse checks the flags.
func (q *question) parse(formats []string) (err error) {
	if !slices.Contains(formats, q.out) {
		return app.Usage(fmt.Errorf("--output %q: use %s", q.out, strings.Join(formats, ", ")))
	}
	if err := q.Parse(); err != nil {
		return err
	}
	for _, text := range q.fail {
		c, err := parseCondition(text, q.measures)
		if err != nil {
			return app.Usage(err)
		}
		q.conditions = append(q.conditions, c)
	}
	return nil
}

// run reads a file or a range of a bus, answers, and returns what the exit status follows from.
func (q *question) run(ctx context.Context, args []string, answer func(*memory) error) error {
	s, err := q.Open(ctx, q.p, args, memoryKinds(q.by)...)
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := readMemory(ctx, s, &q.Range, q.by == byTorch, q.p.Log)
	if err != nil {
		return err
	}
	defer m.Close()
	m.Missing = append(m.Missing, s.Unrecorded(schema.KindMemory)...)
	if err = answer(m); err != nil {
		return fmt.Errorf("analyze %s: %w", s.Name, err)
	}
	texts, err := q.exceeded(m)
	if err != nil {
		return fmt.Errorf("analyze %s: %w", s.Name, err)
	}
	if len(texts) > 0 {
		return app.Findings(errors.New(strings.Join(texts, "; ")))
	}
	return source.Incomplete(m.Missing)
}

func show[T figure](q *question, r *Result[T], title string) error {
	switch {
	case r == nil:
		return nil
	case q.out == "json":
		out := json.NewEncoder(q.p.Stdout)
		out.SetEscapeHTML(false)
		return out.Encode(r)
	case q.out == "csv":
		return writeCSV(q.p.Stdout, r)
	}
	out := &app.Output{Writer: q.p.Stdout}
	writeText(out, r, title)
	return out.Err
}

func (q *question) usage(m *memory) error {
	switch q.out {
	case "json":
		return m.writeUsage(q.p.Stdout, &q.Range, q.by, q.step)
	case "nsys-tsv":
		return m.writeTSV(q.p.Stdout, &q.Range)
	case "text":
		out := &app.Output{Writer: q.p.Stdout}
		return cmp.Or(m.writeUsageText(out, &q.Range, q.by, q.step), out.Err)
	}
	out := csv.NewWriter(q.p.Stdout)
	_ = out.Write([]string{"host", "pid", "comm", "gpu", "series", "time", "unix_ns", "bytes", "cluster",
		"start"}) // out keeps its errors
	for _, p := range m.split(&q.Range, q.by) {
		gpus, start := gpuNames(p), timeText(whoOf(p).Start)
		for _, c := range curves(p, q.by) {
			who := []string{p.ID.Host, decimal(uint64(p.ID.PID)), p.Comm, gpus[c.gpu], c.name}
			err := c.points(p, q.step, func(at time.Time, bytes uint64) {
				_ = out.Write(append(who[:5:5], app.Time{Time: at}.String(), strconv.FormatInt(at.UnixNano(), 10),
					decimal(bytes), p.ID.Cluster, start))
			})
			if err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// scriptClasses are the classes of the older scripts: the call stack is known, nothing is known, the call is known.
var scriptClasses = []func(*analysis.Group) bool{
	func(g *analysis.Group) bool { return len(g.Stack) > 0 },
	func(g *analysis.Group) bool { return len(g.Stack) == 0 && g.Symbol == "" },
	func(g *analysis.Group) bool { return len(g.Stack) == 0 && g.Symbol != "" },
}

// writeTSV writes the curve of one process with the columns of the older scripts.
func (m *memory) writeTSV(to io.Writer, r *Range) error {
	list := m.selected(r)
	if len(list) != 1 {
		return app.Usage(fmt.Errorf("-o nsys-tsv shows one process, and %d are selected; use --pid, --host and "+
			"--cluster", len(list)))
	}
	out := bufio.NewWriterSize(to, 1<<16)
	if _, err := fmt.Fprint(out, "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n"); err != nil {
		return err
	}
	var begin time.Time
	var failed error
	err := list[0].Classes(scriptClasses, func(at time.Time, bytes []uint64) bool {
		if begin.IsZero() {
			begin = at
		}
		_, failed = fmt.Fprintf(out, "%d\t%d\t%d\t%d\t%d\n", at.Sub(begin).Nanoseconds(), bytes[0]+bytes[1]+bytes[2],
			bytes[0], bytes[1], bytes[2])
		return failed == nil
	})
	return cmp.Or(err, failed, out.Flush())
}
