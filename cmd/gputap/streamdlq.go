package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// letterFlags are the flags of gputap stream dlq.
type letterFlags struct {
	last               int
	show               uint64
	follow, purge, yes bool
	raw                bool
	out                *output
}

func streamDLQCommand(b *busCommand) *cobra.Command {
	f := letterFlags{}
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List the dead letters: batches that a consumer rejected",
		Long: `List the dead letters. A consumer writes a copy of a batch here if it cannot decode the batch, if the batch names
another host than its subject, or if the fold returns an error. The list shows the time, fold, shard, subject,
error and size. --show decodes one dead letter; --raw writes its bytes, for examples/read_batch.py.

` + busExitStatus,
		Example: `  gputap stream dlq --nats.url nats://bus:4222 --last 20
  gputap stream dlq --nats.url nats://bus:4222 --follow -o json
  gputap stream dlq --nats.url nats://bus:4222 --show 7
  gputap stream dlq --nats.url nats://bus:4222 --show 7 --raw > batch.msgpack
  gputap stream dlq --nats.url nats://bus:4222 --purge --yes`,
	}
	flags := cmd.Flags()
	flags.IntVar(&f.last, "last", 100, "number of dead letters to list, newest last")
	flags.BoolVar(&f.follow, "follow", false, "also list new dead letters, until interrupted")
	flags.Uint64Var(&f.show, "show", 0, "decode the dead letter with this number")
	flags.BoolVar(&f.raw, "raw", false, "with --show: write only the bytes of the batch")
	flags.BoolVar(&f.purge, "purge", false, "remove all dead letters")
	flags.BoolVar(&f.yes, "yes", false, "with --purge: do not ask for confirmation")
	f.out = addOutput(cmd, "table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.validate(flags.Changed("show"), flags.Changed("last")); err != nil {
			return app.Usage(err)
		}
		return b.with(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
			return b.letters(ctx, js, f)
		})
	}
	return cmd
}

func (f *letterFlags) validate(show, last bool) error {
	switch {
	case f.last < 0:
		return fmt.Errorf("--last %d: use 0 or more", f.last)
	case show && f.show == 0:
		return errors.New("--show 0: use a number from the list")
	case f.raw && !show:
		return errors.New("--raw: use it with --show")
	case f.yes && !f.purge:
		return errors.New("--yes: use it with --purge")
	case show && (f.follow || f.purge), f.follow && f.purge:
		return errors.New("--show, --follow and --purge: use only one")
	case last && f.purge:
		return errors.New("--last: do not use it with --purge, which removes all dead letters")
	}
	return nil
}

// letter is the header of one dead letter.
type letter struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Fold    string    `json:"fold"`
	Shard   string    `json:"shard"`
	Subject string    `json:"subject"` // of the batch
	Stream  string    `json:"stream"`  // that had the batch
	Message string    `json:"message"` // number of the batch in Stream
	Error   string    `json:"error"`
	Bytes   uint64    `json:"bytes"`
}

// purgeJSON is the output of --purge -o json.
type purgeJSON struct {
	Removed uint64 `json:"removed"`
	Bytes   uint64 `json:"bytes"`
}

// newLetter reads the headers that a consumer writes. Any of them may be missing.
func newLetter(seq uint64, at time.Time, subject string, h nats.Header, bytes uint64) letter {
	l := letter{
		Seq: seq, Time: at.UTC(), Subject: h.Get("Gputap-Subject"), Stream: h.Get("Gputap-Stream"),
		Message: h.Get("Gputap-Seq"), Error: h.Get("Gputap-Error"), Bytes: bytes,
	}
	if parts := strings.Split(subject, "."); len(parts) == 5 {
		l.Fold, l.Shard = parts[3], parts[4]
	}
	return l
}

func (b *busCommand) letters(ctx context.Context, js jetstream.JetStream, f letterFlags) error {
	s, err := js.Stream(ctx, schema.DeadLetterStream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return errors.New("read the dead letters: NATS has no stream for them; run gputap stream init")
	case err != nil:
		return fmt.Errorf("read the dead letters: %w", err)
	case f.show > 0:
		return b.showLetter(ctx, s, f)
	case f.purge:
		return b.purgeLetters(ctx, s, f)
	}
	return b.listLetters(ctx, s, f)
}

func (b *busCommand) purgeLetters(ctx context.Context, s jetstream.Stream, f letterFlags) error {
	state := s.CachedInfo().State
	count := app.Plural(state.Msgs, "dead letter", "dead letters")
	if err := b.confirm(ctx, f.yes, fmt.Sprintf("This removes %s, %s.", count, app.Bytes(state.Bytes))); err != nil {
		return err
	}
	if err := s.Purge(ctx); err != nil {
		return fmt.Errorf("remove the dead letters: %w", err)
	}
	return f.out.write(b.p.Stdout, purgeJSON{state.Msgs, state.Bytes}, func(w io.Writer) {
		writeLine(w, "removed %s", count)
	})
}

// listLetters lists the newest f.last dead letters. It reads only headers.
func (b *busCommand) listLetters(ctx context.Context, s jetstream.Stream, f letterFlags) error {
	state := s.CachedInfo().State
	from := max(state.FirstSeq, 1)
	if after := state.LastSeq + 1; after-from > uint64(f.last) {
		from = after - uint64(f.last)
	}
	table := app.NewTable("SEQ", "TIME", "FOLD", "SHARD", "BYTES", "SUBJECT", "ERROR")
	show := func(l letter) {
		if !f.out.json && !f.follow {
			table.Row(l.Seq, timestamp(l.Time), l.Fold, l.Shard, app.Amount(l.Bytes), l.Subject, l.Error)
			return
		}
		_ = f.out.write(b.p.Stdout, l, func(w io.Writer) { // not a table, because the widths of later rows are unknown
			writeLine(w, "%s  seq %d  %q shard %q  %s  %q  %q", timestamp(l.Time), l.Seq, l.Fold, l.Shard,
				app.Bytes(l.Bytes), l.Subject, l.Error)
		})
	}
	if from <= state.LastSeq || f.follow {
		read := letterReader{stream: s, next: from, last: state.LastSeq, follow: f.follow, show: show, log: b.p.Log}
		if err := read.run(ctx); err != nil {
			return err
		}
	}
	if !f.out.json && !f.follow {
		table.Write(b.p.Stdout)
		writeLine(b.p.Stdout, "%s, %s", app.Plural(state.Msgs, "dead letter", "dead letters"), app.Bytes(state.Bytes))
	}
	return nil
}

const (
	cleanupTime = time.Second // bounds a request whose result the command does not need
	retryTime   = time.Second // between two attempts to follow
)

// letterReader shows the dead letters from number next to last, or without end.
type letterReader struct {
	stream     jetstream.Stream
	next, last uint64
	follow     bool
	show       func(letter)
	log        *slog.Logger
}

// run reads until the last dead letter. When it follows, it reads until ctx ends or the stream is removed, and retries
// after other errors.
func (r *letterReader) run(ctx context.Context) error {
	for {
		err := r.read(ctx)
		switch {
		case err == nil:
			return nil
		case r.follow && ctx.Err() != nil:
			return nil // an interrupt is the normal end
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return errors.New("read the dead letters: their stream was removed; run gputap stream init")
		case !r.follow:
			return fmt.Errorf("read the dead letters: %w", err)
		}
		r.log.Warn("cannot read the dead letters; retrying", "err", err)
		bus.Sleep(ctx, retryTime)
	}
}

func (r *letterReader) read(ctx context.Context) error {
	reader, err := r.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next, HeadersOnly: true,
		// Without a limit it retries for ever when the stream was removed, even after ctx has ended.
		MaxResetAttempts: 1,
	})
	if err != nil {
		return err
	}
	defer func() { // otherwise JetStream keeps it for minutes
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		_ = r.stream.DeleteConsumer(ctx, reader.CachedInfo().Name)
	}()
	messages, err := reader.Messages(jetstream.PullMaxMessages(100))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		bytes, _ := strconv.ParseUint(m.Headers().Get("Nats-Msg-Size"), 10, 64)
		if seq := meta.Sequence.Stream; seq <= r.last || r.follow {
			r.show(newLetter(seq, meta.Timestamp, m.Subject(), m.Headers(), bytes))
			r.next = seq + 1
		}
		if !r.follow && (meta.Sequence.Stream >= r.last || meta.NumPending == 0) {
			return nil
		}
	}
}

// headJSON is the output of --show -o json.
type headJSON struct {
	letter
	Batch  *batchJSON `json:"batch"` // null if it cannot be decoded
	Reason string     `json:"reason,omitempty"`
	Begins hexBytes   `json:"begins"` // first 64 bytes in hexadecimal
}

type hexBytes []byte

func (b hexBytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b), nil }

type batchJSON struct {
	Kind    string    `json:"kind"`
	Cluster string    `json:"cluster"`
	Host    string    `json:"host"`
	Boot    string    `json:"boot"`
	Run     uint64    `json:"run"`
	Seq     uint64    `json:"batch_seq"`
	Events  int       `json:"events"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

func (b *busCommand) showLetter(ctx context.Context, s jetstream.Stream, f letterFlags) error {
	m, err := s.GetMsg(ctx, f.show)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("read dead letter %d: no letter has this number; gputap stream dlq lists them", f.show)
	case err != nil:
		return fmt.Errorf("read dead letter %d: %w", f.show, err)
	case f.raw:
		_, err := b.p.Stdout.Write(m.Data)
		return err
	}
	head := headJSON{
		letter: newLetter(m.Sequence, m.Time, m.Subject, m.Header, uint64(len(m.Data))),
		Begins: hexBytes(m.Data[:min(len(m.Data), 64)]),
	}
	var batch schema.Batch
	if err := schema.NewDecoder().Decode(m.Data, &batch); err != nil {
		head.Reason = err.Error()
	} else {
		h := &batch.Header
		head.Batch = &batchJSON{
			Kind: h.Kind.String(), Cluster: h.Cluster, Host: h.Host, Boot: h.BootID, Run: h.Run, Seq: h.Seq,
			Events: h.Events, First: h.Wall(h.First), Last: h.Wall(h.Last),
		}
	}
	return f.out.write(b.p.Stdout, head, head.write)
}

func (h *headJSON) write(w io.Writer) {
	table := app.NewTable("DEAD LETTER", fmt.Sprint(h.Seq))
	row := func(name, format string, args ...any) { table.Row(name, fmt.Sprintf(format, args...)) }
	row("time", "%s", timestamp(h.Time))
	row("fold", "%s, shard %s", h.Fold, h.Shard)
	row("error", "%s", h.Error)
	row("subject", "%s", h.Subject)
	row("message", "%s of %s", h.Message, h.Stream)
	row("bytes", "%d", h.Bytes)
	if b := h.Batch; b != nil {
		row("kind", "%s", b.Kind)
		row("cluster, host", "%s, %s", b.Cluster, b.Host)
		row("boot, run", "%s, %d", b.Boot, b.Run)
		row("batch seq", "%d", b.Seq)
		row("events", "%d, %s to %s", b.Events, timestamp(b.First), timestamp(b.Last))
	} else {
		row("not a batch", "%s", h.Reason)
	}
	table.Write(w)
	_, _ = io.WriteString(w, hex.Dump(h.Begins))
}
