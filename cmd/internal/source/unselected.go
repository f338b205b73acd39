package source

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Unselected returns a sentence if the range selects processes or times, and no process of the source. So a mistyped
// name does not pass for a process without findings. It reads the whole range in the worst case: call it only if the
// answer has no process.
func (s *Source) Unselected(ctx context.Context, r *Range) ([]string, error) {
	return s.unselected(ctx, r, true)
}

// unselected is Unselected. With state, the processes in the state at the beginning count, too.
func (s *Source) unselected(ctx context.Context, r *Range, state bool) ([]string, error) {
	flags := r.selects(!s.ofBus)
	if flags == "" {
		return nil, nil
	}
	found, err := s.finds(ctx, r, state)
	if found || err != nil {
		return nil, err
	}
	text := "no process is selected by " + flags
	if !s.ofBus && (!r.Since.IsZero() || !r.Until.IsZero()) {
		text += s.covers()
	}
	return []string{text}, nil
}

// covers returns which range of time the messages of the file have; "": it has none. It reads the summaries of blocks.
func (s *Source) covers() string {
	var since, until time.Time
	for b, err := range s.reader.Summaries() {
		if err != nil || b.Since.IsZero() {
			continue // damages are reported elsewhere
		}
		if since.IsZero() || b.Since.Before(since) {
			since = b.Since
		}
		if b.Until.After(until) {
			until = b.Until
		}
	}
	if since.IsZero() {
		return ""
	}
	const layout = "2006-01-02T15:04:05.000Z"
	return "; the file covers " + since.UTC().Format(layout) + " to " + until.UTC().Format(layout)
}

// finds reports whether a batch of the range, or the state before it, has a process that the range selects.
func (s *Source) finds(ctx context.Context, r *Range, state bool) (bool, error) {
	decoder, batch, begun := schema.NewDecoder(), schema.Batch{}, false
	for m, err := range s.Messages(recording.Filter{Until: r.Until}) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return false, err
		}
		begun = true
		if m.Stored.Before(r.Since) || decoder.Decode(m.Data, &batch) != nil {
			continue
		}
		for i := range batch.Processes {
			if r.SelectsRow(&batch, &batch.Processes[i]) {
				return true, nil
			}
		}
	}
	if !state || !begun && !r.Until.IsZero() { // the range ends before the state
		return false, nil
	}
	return s.findsInState(ctx, r)
}

func (s *Source) findsInState(ctx context.Context, r *Range) (bool, error) {
	m := &movements{source: s, log: slog.New(slog.DiscardHandler), folds: map[*moved.Lane]*laneFold{}}
	m.receiver = func() func(*leak.Movement) { return nil } // the range of these folds never begins
	if err := m.restore(ctx); err != nil {
		return false, err
	}
	for _, f := range m.folds {
		report := f.tracker.Report()
		for i := range report.Processes {
			if r.Selects(&report.Processes[i].Info) {
				return true, nil
			}
		}
	}
	return false, nil
}

// selects returns the flags that select processes, and with times those of the range of time; "": there are none.
func (r *Range) selects(times bool) string {
	var flags []string
	for _, one := range []struct{ name, value string }{
		{"cluster", r.Cluster}, {"host", r.Host}, {"user", r.User}, {"comm", r.Comm}, {"job", r.Job},
	} {
		if one.value != "" {
			flags = append(flags, "--"+one.name+" "+one.value)
		}
	}
	if r.PID != 0 {
		flags = append(flags, fmt.Sprint("--pid ", r.PID))
	}
	for _, one := range []struct {
		name, typed string
		at          time.Time
	}{{"since", r.since, r.Since}, {"until", r.until, r.Until}} {
		if times && !one.at.IsZero() {
			flags = append(flags, "--"+one.name+" "+cmp.Or(one.typed, one.at.UTC().Format(time.RFC3339Nano)))
		}
	}
	return strings.Join(flags, ", ")
}
