package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// maxPending bounds the batches that wait for a slow output.
const maxPending = 64 << 20

// tail prints events while they are published.
type tail struct {
	*question
	format *format
	kind   string
	limit  int

	events    event.Reader
	malformed int // batches
}

func tailCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the CUDA calls of a fleet as they happen",
		Long: `Print CUDA calls as hosts publish them, one line each, until a signal arrives. Calls from before are not printed.
The calls of one host and kind are in order; hosts mix by arrival. If the output is too slow, whole batches are left
out and counted on standard error.

With --nats.url (or GPUTAP_NATS__URL) the events of that bus are printed, else those of the newest gputap run of this
host.

Exit status: 0 success; 1 an error; 2 wrong flags; 4 batches were left out; 5 NATS is unreachable; 6 privileges are
missing.`,
		Example: `  gputap tail --nats.url nats://bus:4222 --host gpu-1 --kind memory
  gputap tail --comm python3 -o json`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
	}
	t := &tail{question: newQuestion(p, cmd)}
	t.addFilters(cmd)
	flags := cmd.Flags()
	flags.StringVar(&t.kind, "kind", "", "only calls of this kind: "+strings.Join(event.Kinds(), ", "))
	flags.IntVar(&t.limit, "limit", 0, "end after so many calls (default: never)")
	t.format = addFormat(cmd, "text", "json")
	complete(cmd, "kind", event.Kinds()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context()) }
	return cmd
}

func (t *tail) run(ctx context.Context) error {
	kind, known := event.ParseKind(t.kind)
	if t.kind != "" && !known {
		return app.Usage(fmt.Errorf("--kind %q: use %s", t.kind, strings.Join(event.Kinds(), ", ")))
	}
	if t.limit < 0 {
		return app.Usage(fmt.Errorf("--limit %d: use 0 or more", t.limit))
	}
	if err := errors.Join(t.format.validate(), t.validate()); err != nil {
		return err
	}
	nc, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync(t.subject(kind))
	if err == nil {
		err = errors.Join(sub.SetPendingLimits(-1, maxPending), nc.Flush())
	}
	if err != nil {
		return fmt.Errorf("subscribe to the events: %w", err)
	}
	out := &app.Output{Writer: t.p.Stdout}
	if err := t.follow(ctx, sub, bufio.NewWriter(out)); err != nil {
		return err
	}
	if out.Err != nil {
		return out.Err
	}
	if t.malformed > 0 {
		return app.Incomplete(fmt.Errorf("%d batches were left out: they are malformed", t.malformed))
	}
	if n, err := sub.Dropped(); err == nil && n > 0 {
		return app.Incomplete(fmt.Errorf("%d batches were left out: the output is too slow; use a filter", n))
	}
	return nil
}

// subject selects as much as a subject can: exact names, and the kind.
func (t *tail) subject(kind schema.Kind) string {
	word := "*"
	if kind != schema.KindNone {
		word = kind.String()
	}
	return "gputap.v1.ev.*." + t.ClusterToken() + "." + t.HostToken() + "." + word
}

// follow prints until ctx ends, the limit is reached, or the connection or the output fails.
func (t *tail) follow(ctx context.Context, sub *nats.Subscription, out *bufio.Writer) error {
	decoder, batch, left := schema.NewDecoder(), &schema.Batch{}, t.limit
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrSlowConsumer): // Dropped counts them
			continue
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read the events: %w", err)
		}
		if err := decoder.Decode(m.Data, batch); err != nil {
			if t.malformed++; t.malformed == 1 {
				fmt.Fprintf(t.p.Stderr, "left out a batch on %s: %v; the next ones are counted alone\n", m.Subject, err)
			}
			continue
		}
		if batch.Kind == schema.KindRank || batch.Kind == schema.KindNone { // without calls, or of a newer gputap
			continue
		}
		done, err := t.print(out, batch, &left)
		if err = errors.Join(err, out.Flush()); err != nil || done {
			return err
		}
	}
}

// print writes the selected events of a batch. done means that the limit is reached.
func (t *tail) print(out io.Writer, b *schema.Batch, left *int) (done bool, err error) {
	encoder := event.NewEncoder(out)
	for i := range b.Events {
		p := &b.Processes[b.Threads[b.Thread().At(i)].Process]
		if !t.Process(&query.Subject{Cluster: b.Cluster, Host: b.Host, User: p.User, Comm: p.Comm, Job: p.Job,
			UID: p.UID, PID: p.PID}) {
			continue
		}
		e := t.events.Of(b, i)
		if t.format.json() {
			err = encoder.Encode(&e)
		} else {
			_, err = fmt.Fprintln(out, e.Line())
		}
		if *left--; err != nil || *left == 0 {
			return true, err
		}
	}
	return false, nil
}
