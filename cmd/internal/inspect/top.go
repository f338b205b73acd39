package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/cmd/internal/screen"
	"github.com/gputap/gputap/consumer/query"
)

// defaultWidth and defaultHeight are those of a screen that is no terminal.
const (
	defaultWidth, defaultHeight = 80, 24
	maxAllocations              = 1000 // of the process that is open
)

// topFlags are the flags of gputap top.
type topFlags struct {
	interval time.Duration
	sort     string
	once     bool
	*format
}

func topCommand(p *app.Process) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the processes of a fleet on a full screen: who holds memory, who leaks, who waits",
		Long: `Show the processes of a fleet on a full screen, and ask again every 2 s. The key ? lists the keys and explains the
columns: sort, filter, pause, and open a process, its groups of allocations, and their addresses. A terminal of 160
columns shows all figures, one of 80 the main ones.

With --nats.url (or GPUTAP_NATS__URL) the consumers of that bus answer, else the newest gputap run of this host.
--once prints one screen and exits; it needs no terminal. Its size is COLUMNS and LINES, else that of the terminal, else
80 by 24. -o json prints all processes once, as one object. NO_COLOR switches colours off; a word says the same as each
colour.

Exit status: 0 success; 1 an error; 2 wrong flags; 4 a shard did not answer (--once, -o json); 5 NATS is unreachable;
6 privileges are missing.`,
		Example: `  gputap top                                              # a gputap run of this host
  gputap top --nats.url nats://bus:4222 --sort growth     # who leaks
  gputap top --host 'gpu-1*' --user ann --interval 5s
  LINES=20 gputap top --once --sort wait
  gputap top -o json --sort growth`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	q := newQuestion(p, cmd)
	q.addFilters(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&f.interval, "interval", 2*time.Second, "time between an answer and the next question")
	flags.StringVar(&f.sort, "sort", screen.Orders()[0], "order of the processes: "+strings.Join(screen.Orders(), ", "))
	flags.BoolVar(&f.once, "once", false, "print one screen and exit")
	f.format = addFormat(cmd, "screen", "json")
	complete(cmd, "sort", screen.Orders()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return q.top(cmd.Context(), &f) }
	return cmd
}

func (q *question) top(ctx context.Context, f *topFlags) error {
	switch {
	case f.validate() != nil:
		return f.validate()
	case !slices.Contains(screen.Orders(), f.sort):
		return app.Usage(fmt.Errorf("--sort %q: unknown order; use %s", f.sort, strings.Join(screen.Orders(), ", ")))
	case f.interval <= 0:
		return app.Usage(fmt.Errorf("--interval %s: use more than 0", f.interval))
	case !f.once && !f.json() && (!app.IsTerminal(q.p.Stdout) || !term.IsTerminal(int(os.Stdin.Fd()))):
		return app.Usage(errors.New("show the screen: standard input or output is not a terminal; use --once"))
	}
	if err := q.validate(); err != nil {
		return err
	}
	q.p.Log = slog.New(slog.DiscardHandler) // lines of a log would break the screen, which shows errors itself
	source := &fleetSource{question: q}
	if err := source.dial(ctx); err != nil {
		return err
	}
	defer source.close()
	if f.json() {
		return source.print(ctx, f)
	}
	options := screen.Options{Interval: f.interval, Sort: f.sort, Scope: q.scope(), Styles: q.styles(), Now: time.Now}
	if !f.once {
		return screen.Run(ctx, source, options, os.Stdin, q.p.Stdout.(*os.File))
	}
	width, height := q.size()
	incomplete, err := screen.Once(ctx, source, options, width, height, q.p.Stdout)
	if err == nil && incomplete != nil {
		err = app.Incomplete(incomplete)
	}
	return err
}

// print writes all processes as one JSON object.
func (s *fleetSource) print(ctx context.Context, f *topFlags) error {
	o, err := s.Overview(ctx)
	if err != nil {
		return err
	}
	screen.Sort(o.Processes, f.sort)
	if err := f.write(s.p.Stdout, o.Top(), nil); err != nil {
		return err
	}
	if err := o.Incomplete(); err != nil {
		return app.Incomplete(err)
	}
	return nil
}

// scope is the filters that are set.
func (q *question) scope() string {
	var parts []string
	for _, f := range [][2]string{
		{"cluster", q.Cluster}, {"host", q.Host}, {"user", q.User}, {"comm", q.Comm}, {"job", q.Job},
	} {
		if f[1] != "" {
			parts = append(parts, f[0]+"="+f[1])
		}
	}
	return strings.Join(parts, " ")
}

func (q *question) styles() screen.Styles {
	switch {
	case !app.IsTerminal(q.p.Stdout):
		return screen.Plain
	case os.Getenv("NO_COLOR") != "":
		return screen.Marks
	}
	return screen.Colours
}

// size is the size of the screen of --once.
func (q *question) size() (width, height int) {
	if file, ok := q.p.Stdout.(*os.File); ok {
		width, height, _ = term.GetSize(int(file.Fd())) // 0 without a terminal
	}
	return cmp.Or(variable("COLUMNS"), width, defaultWidth), cmp.Or(variable("LINES"), height, defaultHeight)
}

// variable returns a number above 0 from the environment, else 0.
func variable(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0
	}
	return max(0, n)
}

// fleetSource asks a fleet. It connects again if a gputap run has ended and another one has begun.
type fleetSource struct {
	*question
	nc *nats.Conn
}

func (s *fleetSource) dial(ctx context.Context) (err error) {
	if s.nc != nil && !s.nc.IsClosed() {
		return nil
	}
	s.nc, err = s.connect(ctx)
	return err
}

func (s *fleetSource) close() {
	if s.nc != nil {
		s.nc.Close()
	}
}

// Overview implements screen.Source.
func (s *fleetSource) Overview(ctx context.Context) (o *answer.Overview, err error) {
	err = s.with(ctx, func(ctx context.Context, fleet *answer.Fleet) error {
		o, err = fleet.Overview(ctx, s.Filter)
		return err
	})
	return o, err
}

// Process implements screen.Source.
func (s *fleetSource) Process(ctx context.Context, subject screen.Subject) (found *report.Process, err error) {
	filter := query.Filter{Cluster: subject.Cluster, Host: subject.Host, PID: subject.PID}
	err = s.with(ctx, func(ctx context.Context, fleet *answer.Fleet) error {
		list, err := fleet.Describe(ctx, filter, maxAllocations)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(list.Items, subject.Is); i >= 0 {
			found = list.Items[i]
		}
		if found == nil || found.LiveAllocations > 0 && len(found.Largest) == 0 {
			return list.Incomplete() // the shard of the process may be missing
		}
		return nil
	})
	return found, err
}

// with calls do with the time that an answer may take.
func (s *fleetSource) with(ctx context.Context, do func(context.Context, *answer.Fleet) error) error {
	if err := s.dial(ctx); err != nil {
		return err
	}
	err := s.ask(ctx, func(ctx context.Context) error { return do(ctx, answer.NewFleet(s.nc)) })
	if err != nil && ctx.Err() == nil && !s.nc.IsConnected() {
		return app.Unreachable(fmt.Errorf("NATS is unreachable, or the gputap run has ended: %w; trying again", err))
	}
	return s.p.ExplainTimeout(err)
}
