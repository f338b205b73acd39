package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Argument is the argument of a command that calls Range.Open, for its usage line.
const Argument = " FILE | --since TIME"

// connectTime is how long a command waits for NATS.
var connectTime = 5 * time.Second // tests shorten it

// Open opens the recording or the export that args names. Without a name it records the range of a bus into a
// temporary file, and only the given kinds; none: all. The state at the beginning of the range is part of it.
func (r *Range) Open(ctx context.Context, p *app.Process, args []string, kinds ...schema.Kind) (*Source, error) {
	switch {
	case len(args) > 0:
		s, err := Open(ctx, args[0])
		if err == nil {
			if len(r.resolved) > 0 {
				p.Log.Info("reading a range of the recording", r.resolved...)
			}
			for _, text := range s.Notes(kinds...) {
				fmt.Fprintf(p.Stderr, "%s: %s\n", args[0], text)
			}
		}
		return s, err
	case r.Since.IsZero():
		return nil, app.Usage(errors.New("nothing to read: name a recording, or set --since to read a range of a bus"))
	}
	stats, err := r.record(ctx, p, kinds)
	if err != nil {
		return nil, p.ExplainTimeout(err)
	}
	defer func() { _ = os.Remove(stats.Path) }() // the Source keeps it open
	s, err := openRecording(stats.Path)
	if err != nil {
		return nil, err
	}
	s.Name, s.ofBus, s.lost = "the range since "+textOf(r.Since), true, stats.Lost()
	return s, nil
}

// record records the range of the bus into a temporary file, which the caller removes.
func (r *Range) record(ctx context.Context, p *app.Process, kinds []schema.Kind) (record.Stats, error) {
	cfg, err := r.readBus()
	if err != nil {
		return record.Stats{}, app.Usage(err)
	}
	nc, js, err := p.Dial(ctx, cfg, connectTime)
	if err != nil {
		return record.Stats{}, err
	}
	defer nc.Close()
	o := record.Options{JetStream: js, Selection: r.selection(kinds), Since: r.Since, Until: r.Until, Log: p.Log}
	if o.Until.IsZero() {
		o.Until = time.Now()
	}
	return record.Range(ctx, o, "", func(recorder *record.Recorder) func() {
		return p.Progress(record.ProgressLine(recorder, o.Until))
	})
}

// selection returns what to record. A recording selects a cluster and a host by their exact names.
func (r *Range) selection(kinds []schema.Kind) recording.Selection {
	exact := func(pattern string) string {
		if strings.ContainsAny(pattern, `*?[\`) {
			return ""
		}
		return pattern
	}
	return recording.Selection{Cluster: exact(r.Cluster), Host: exact(r.Host), Job: r.Job, Kinds: kinds}
}

// check returns an error about a range of a bus that does not exist.
func (r *Range) check(now time.Time) error {
	if !r.Since.IsZero() && !r.Until.IsZero() && !r.Since.Before(r.Until) {
		return app.Usage(fmt.Errorf("--since %s: it is not before --until %s", r.since, r.until))
	}
	if r.Since.After(now) {
		return app.Usage(fmt.Errorf("--since %s: it is in the future", r.since))
	}
	return nil
}
