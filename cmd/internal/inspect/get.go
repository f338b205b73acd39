package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/query"
)

const defaultLimit = 50

// whoAnswers and exitStatus are parts of the help of several commands.
const (
	whoAnswers = `With --nats.url (or GPUTAP_NATS__URL) the consumers of that bus answer, else the newest gputap run of this
host.`
	exitStatus = `Exit status: 0 success; 1 an error; 2 wrong flags; 4 a shard did not answer; 5 NATS is unreachable;
6 privileges are missing.`
)

// listing is the flags of one command below gputap get.
type listing struct {
	*question
	limit  int
	sort   string
	format *format
	watch  time.Duration
	since  string // of a history; "": what the consumers know now
}

func getCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List processes, hosts, GPUs, kernels, copies, jobs or alerts of a fleet",
		Long: `List what the consumers of a fleet know. Each shard of the fleet answers from memory. The answer has at
most 50 items; --limit 0 shows all.

` + whoAnswers + "\n\n" + exitStatus,
		Example: `  gputap get processes --nats.url nats://bus:4222            # who holds memory
  gputap get processes --host 'gpu-1*' --user ann -o wide
  gputap get hosts --sort heard                               # the host that was silent for longest comes first
  gputap get kernels --comm python3 --limit 10
  gputap get jobs                                             # which rank holds up the others
  gputap get gpus -o json
  gputap get alerts --since 1h                                # also those that have cleared
  gputap get processes --watch`,
	}
	q := newQuestion(p, cmd)
	q.addFilters(cmd)
	add(q, cmd, processes)
	add(q, cmd, hosts)
	add(q, cmd, gpus)
	add(q, cmd, kernels)
	add(q, cmd, copies)
	add(q, cmd, jobs)
	add(q, cmd, alerts)
	return cmd
}

// resource is one kind of items.
type resource[T any] struct {
	name, short string
	examples    string // lines of the help
	columns     []column[T]
	orders      []order[T] // the first is the default: the order in which shards answer
	ask         func(*answer.Fleet, context.Context, query.Question) (*answer.List[T], error)
	detail      bool // JSON needs a question with detail
	// history asks for what NATS has stored since a time; nil: there is no history.
	history func(*answer.Fleet, context.Context, query.Question, time.Time) (*answer.List[T], error)
	tie     func(a, b *T) int
}

// column is one column of a table. The cell may depend on the time of the answer.
type column[T any] struct {
	title string
	wide  bool // shown by -o wide, and if --sort names it
	cell  func(item *T, now time.Time) any
}

// clusterTitle is the title of a column that is shown if the items are of several clusters.
const clusterTitle = "CLUSTER"

// differs reports whether the items have different cells. Empty ones do not count.
func (c *column[T]) differs(list *answer.List[T]) bool {
	first := any("")
	for i := range list.Items {
		switch cell := c.cell(&list.Items[i], list.Time); {
		case first == "":
			first = cell
		case cell != "" && cell != first:
			return true
		}
	}
	return false
}

type order[T any] struct {
	name    string
	compare func(a, b *T) int
}

func add[T any](q *question, to *cobra.Command, r resource[T]) {
	l := &listing{question: q}
	var sorts []string
	for _, o := range r.orders {
		sorts = append(sorts, o.name)
	}
	cmd := &cobra.Command{
		Use: r.name, Short: r.short, Example: r.examples,
		Long: r.short + ".\n\n" + whoAnswers + "\n\n" + exitStatus,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return get(cmd.Context(), l, r) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&l.limit, "limit", defaultLimit, "most items to show; 0: all")
	flags.StringVar(&l.sort, "sort", sorts[0], "order of the items: "+strings.Join(sorts, ", "))
	if r.history != nil {
		flags.StringVar(&l.since, "since", "",
			"show what NATS has stored since this time, such as 1h or 2026-01-02T15:04:05Z")
	}
	l.format = addFormat(cmd, "table", "wide", "json")
	flags.DurationVar(&l.watch, "watch", 0, "ask again after this time, until a signal arrives")
	flags.Lookup("watch").NoOptDefVal = "2s"
	complete(cmd, "sort", sorts...)
	to.AddCommand(cmd)
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// get asks once, or again and again with --watch.
func get[T any](ctx context.Context, l *listing, r resource[T]) error {
	by := slices.IndexFunc(r.orders, func(o order[T]) bool { return o.name == l.sort })
	switch {
	case by < 0:
		var names []string
		for _, o := range r.orders {
			names = append(names, o.name)
		}
		return app.Usage(fmt.Errorf("--sort %q: unknown order; use %s", l.sort, strings.Join(names, ", ")))
	case l.format.validate() != nil:
		return l.format.validate()
	case l.limit < 0:
		return app.Usage(fmt.Errorf("--limit %d: use 0 or more", l.limit))
	case l.watch < 0:
		return app.Usage(fmt.Errorf("--watch %s: use 0 or more", l.watch))
	}
	ask, err := r.asking(l.since)
	if err != nil {
		return app.Usage(err)
	}
	q := query.Question{Filter: l.Filter, Detail: r.detail && l.format.json()}
	if by == 0 {
		q.Limit = l.limit // shards send their largest items alone
	}
	return l.with(ctx, func(ctx context.Context, fleet *answer.Fleet) error {
		return repeat(ctx, l.watch, func(again bool) error {
			var list *answer.List[T]
			err := l.ask(ctx, func(ctx context.Context) (err error) {
				list, err = ask(fleet, ctx, q)
				return err
			})
			if err = unreachable(err); again && app.ExitCode(err) == 5 {
				fmt.Fprintln(l.p.Stderr, err) // NATS may return
				return nil
			}
			if err != nil {
				return err
			}
			clusters := r.severalClusters(list) // those of rows below the limit count, too
			r.sort(list, r.orders[by].compare, l.limit)
			if again && !l.format.json() {
				fmt.Fprintln(l.p.Stdout)
			}
			return l.show(list, func(w io.Writer) {
				if l.watch > 0 {
					fmt.Fprintln(w, list.Time.UTC().Format("2006-01-02 15:04:05Z"))
				}
				switch {
				case len(list.Items) > 0:
					r.table(list, clusters, l.format.name == "wide", l.sort).Write(w)
				case list.Incomplete() == nil: // otherwise nobody knows
					fmt.Fprintln(l.p.Stderr, "no", r.name)
				}
			})
		})
	})
}

// asking returns what asks for the items: those of the consumers, or with a time the history since then.
func (r *resource[T]) asking(since string) (
	func(*answer.Fleet, context.Context, query.Question) (*answer.List[T], error), error,
) {
	if since == "" {
		return r.ask, nil
	}
	if _, err := app.ParseTime(since, time.Now()); err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	return func(fleet *answer.Fleet, ctx context.Context, q query.Question) (*answer.List[T], error) {
		from, _ := app.ParseTime(since, time.Now()) // a duration moves with --watch
		return r.history(fleet, ctx, q, from)
	}, nil
}

// show writes a list, and returns an error that names missing shards.
func (l *listing) show(list interface {
	Incomplete() error
	More() int
	Remarks() []string
}, table func(io.Writer)) error {
	if err := l.format.write(l.p.Stdout, list, table); err != nil {
		return err
	}
	for _, remark := range list.Remarks() {
		fmt.Fprintln(l.p.Stderr, remark)
	}
	if more := list.More(); more > 0 {
		fmt.Fprintf(l.p.Stderr, "… and %d more; --limit 0 shows all\n", more)
	}
	if err := list.Incomplete(); err != nil {
		return app.Incomplete(err)
	}
	return nil
}

// repeat calls do once, or with an interval until ctx ends. An incomplete answer does not end a watch.
func repeat(ctx context.Context, interval time.Duration, do func(again bool) error) error {
	err := do(false)
	if interval == 0 {
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil && (err == nil || app.ExitCode(err) == 4) {
		select {
		case <-tick.C:
			err = do(true)
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil { // the last question may have been interrupted
		return nil
	}
	return err
}

// sort orders the items and cuts them. Equal items have one order.
func (r *resource[T]) sort(list *answer.List[T], compare func(a, b *T) int, limit int) {
	slices.SortStableFunc(list.Items, func(a, b T) int {
		if c := compare(&a, &b); c != 0 {
			return c
		}
		return r.tie(&a, &b)
	})
	if limit > 0 {
		list.Items = list.Items[:min(limit, len(list.Items))]
	}
}

// severalClusters reports whether the items are of several clusters.
func (r *resource[T]) severalClusters(list *answer.List[T]) bool {
	i := slices.IndexFunc(r.columns, func(c column[T]) bool { return c.title == clusterTitle })
	return i >= 0 && r.columns[i].differs(list)
}

func (r *resource[T]) table(list *answer.List[T], clusters, wide bool, order string) *app.Table {
	asked := order != r.orders[0].name
	shown := slices.DeleteFunc(slices.Clone(r.columns), func(c column[T]) bool {
		return c.wide && !wide && (!asked || !strings.HasPrefix(strings.ToLower(c.title), order)) &&
			(c.title != clusterTitle || !clusters)
	})
	var titles []string
	for _, c := range shown {
		titles = append(titles, c.title)
	}
	t := app.NewTable(titles...)
	for i := range list.Items {
		var cells []any
		for _, c := range shown {
			cells = append(cells, c.cell(&list.Items[i], list.Time))
		}
		t.Row(cells...)
	}
	return t
}
