package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

const exitStatus = `
Exit status: 0 success; 1 an error; 2 wrong flags; 4 the data are incomplete, and a message says what is missing;
5 NATS is unreachable.`

// sink writes one form.
type sink interface {
	event(b *schema.Batch, i int) error // event i of a batch, which is valid during the call
	finish() error
}

// mover is a sink that also needs the movements of memory. receiver returns the receiver of those of one shard.
type mover interface {
	receiver() func(*leak.Movement)
}

// lossy is a sink that may have to leave something out. missing says what, after finish.
type lossy interface {
	missing() []string
}

// opener begins the output.
type opener func(context.Context, *options, *source.Source) (sink, error)

// form is one form of the output.
type form struct {
	name, short, long string
	example           string
	open              opener
	flags             func(*options, *cobra.Command) // nil: none of its own
}

// options are the flags.
type options struct {
	p *app.Process
	source.Range
	out      string
	kind     string
	minBytes config.Bytes
	alerts   bool
	files    files
}

// Command returns gputap export.
func Command(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Convert a recording into the forms of other programs",
		Long:  "Convert the events of a recording into the forms of other programs.\n" + exitStatus,
		Example: `  gputap export jsonl run.gputap -o -
  gputap export csv run.gputap -o events/
  gputap export perfetto run.gputap -o trace.pftrace`,
	}
	for _, f := range []form{jsonlForm, csvForm, perfettoForm, pprofForm, memoryVizForm, parquetForm} {
		cmd.AddCommand(formCommand(p, f))
	}
	return cmd
}

func formCommand(p *app.Process, f form) *cobra.Command {
	o := &options{p: p}
	cmd := &cobra.Command{
		Use: f.name + source.Argument, Short: f.short, Long: f.short + ".\n" + f.long + exitStatus, Example: f.example,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args, f.open) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&o.out, "output", "o", "", "file to write; -: standard output")
	if f.flags != nil {
		f.flags(o, cmd)
	}
	o.AddFlags(cmd)
	return cmd
}

func (o *options) check() error {
	if o.out == "" {
		return app.Usage(errors.New("--output: name a file, or - for standard output"))
	}
	if _, known := event.ParseKind(o.kind); o.kind != "" && !known {
		return app.Usage(fmt.Errorf("--kind %q: use %s", o.kind, strings.Join(event.Kinds(), ", ")))
	}
	return o.Parse()
}

// addKind adds the flag --kind.
func addKind(o *options, cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kind, "kind", "", "only events of this kind: "+strings.Join(event.Kinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind",
		cobra.FixedCompletions(event.Kinds(), cobra.ShellCompDirectiveNoFileComp))
}

// run converts a recording or a range of a bus.
func (o *options) run(ctx context.Context, args []string, open opener) error {
	s, err := o.Open(ctx, o.p, args)
	if err != nil {
		return err
	}
	defer s.Close()
	o.files.stdout, o.files.inputs = o.p.Stdout, args
	defer o.files.discard()
	to, err := open(ctx, o, s)
	if err != nil {
		return err
	}
	if c, closes := to.(io.Closer); closes {
		defer func() { _ = c.Close() }() // it is only memory and a temporary file
	}
	missing, err := o.convert(ctx, s, to)
	if err == nil {
		err = to.finish()
	}
	if err == nil {
		err = o.files.commit()
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", s.Name, err)
	}
	if l, loses := to.(lossy); loses {
		missing = append(missing, l.missing()...)
	}
	return source.Incomplete(missing)
}

// convert gives all events of the range to a sink.
func (o *options) convert(ctx context.Context, s *source.Source, to sink) (missing []string, err error) {
	r := &reader{source.NewBatches(&o.Range), to}
	if m, moves := to.(mover); moves {
		receiver := func() func(*leak.Movement) { return selected(&o.Range, m.receiver()) }
		_, missing, err = s.Movements(ctx, &o.Range, receiver, r.read, o.p.Log)
		return append(missing, r.batches.Missing()...), err
	}
	filter := recording.Filter{Since: o.Since, Until: o.Until}
	if kind, known := event.ParseKind(o.kind); known {
		filter.Kinds = []schema.Kind{kind}
	}
	for m, err := range s.InOrder(ctx, filter) {
		if err == nil {
			err = r.read(m.Recorded)
		}
		if err != nil {
			return nil, err
		}
	}
	if !r.batches.Selected() {
		if missing, err = s.Unselected(ctx, &o.Range); err != nil {
			return nil, err
		}
	}
	return slices.Concat(missing, s.Missing(), r.batches.Missing()), nil
}

// selected passes on the movements of the processes that a range selects. What a process allocated under another name
// stays unselected when it is freed.
func selected(r *source.Range, receive func(*leak.Movement)) func(*leak.Movement) {
	slots := map[uint32]struct{}{}
	return func(m *leak.Movement) {
		if m.Cause == leak.Allocated || m.Cause == leak.Known {
			if r.Selects(m.Info) {
				slots[m.Slot] = struct{}{}
				receive(m)
			}
			return
		}
		if _, has := slots[m.Slot]; has {
			delete(slots, m.Slot)
			receive(m)
		}
	}
}
