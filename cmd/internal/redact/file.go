package redact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/gputap/gputap/schema/recording"
)

// Stats are the figures of File.
type Stats struct {
	Messages, Events uint64
	LeftOut          uint64 // messages and sections whose names cannot be replaced
	Late             uint64 // messages that were left out, because they are behind later ones
	Damages          uint64 // of the input
	Bytes            int64  // of the output
}

// File writes a redacted copy of a recording. It reads around damages.
func File(ctx context.Context, in string, to io.Writer, log *slog.Logger) (*Stats, error) {
	from, err := recording.Open(in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	w, err := recording.NewWriter(to)
	if err != nil {
		return nil, err
	}
	c := copying{Redactor: New(log), in: in, from: from, w: w, damages: map[int64]bool{},
		read: map[int]*recording.Sequences{}}
	if err = c.run(ctx); err == nil {
		err = w.Close()
	}
	c.stats.Events, c.stats.Bytes = w.Events(), w.Bytes()
	return &c.stats, err
}

// copying is one call of File.
type copying struct {
	*Redactor
	in    string
	from  *recording.Reader
	w     *recording.Writer
	stats Stats

	damages map[int64]bool               // offsets of those that were reported
	read    map[int]*recording.Sequences // of messages, by shard
}

func (c *copying) run(ctx context.Context) error {
	for s, err := range c.from.State() {
		if err == nil {
			if s, err = c.Section(s); err == nil {
				err = c.w.AddSection(s)
			}
		}
		if err := c.tolerate(ctx, err); err != nil {
			return err
		}
	}
	selection, streams, err := c.from.Streams()
	if err != nil {
		return err
	}
	if err := c.w.AddStreams(c.Selection(selection), streams); err != nil {
		return err
	}
	for m, err := range c.from.Messages(recording.Filter{}) {
		if err == nil && !c.isNew(&m) {
			continue
		}
		if err == nil {
			if m, err = c.Message(&m); err == nil {
				if err = c.w.Append(&m); err == nil {
					c.stats.Messages++
				}
			}
		}
		if err := c.tolerate(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// isNew reports whether the input did not have a message before.
func (c *copying) isNew(m *recording.Message) bool {
	read := c.read[m.Shard]
	if read == nil {
		read = &recording.Sequences{}
		c.read[m.Shard] = read
	}
	return read.Add(m.Sequence)
}

// tolerate counts damages of the input, and messages and states that are left out. It returns other errors.
func (c *copying) tolerate(ctx context.Context, err error) error {
	d, isDamage := errors.AsType[*recording.Damage](err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("redact %s: %w", c.in, ctx.Err())
	case isDamage && c.damages[d.Offset]:
	case isDamage:
		c.damages[d.Offset] = true
		c.stats.Damages++
		c.log.Warn("the recording is damaged; continuing behind it", "file", c.in, "offset", d.Offset, "bytes", d.Bytes,
			"err", d.Reason)
	case errors.Is(err, recording.ErrRecorded):
		c.stats.Late++
	case errors.Is(err, ErrLeftOut):
		c.stats.LeftOut++
		c.log.Warn("message or state left out of the copy", "file", c.in, "err", err)
	default:
		return err
	}
	return nil
}
