package consumertest

import (
	"bytes"
	"testing"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Step is one input of a fold: a message, or the report that batches of a host were lost.
type Step struct {
	Message []byte
	Lost    uint64 // number of lost batches; 0: Message is set
	From    schema.Header
}

// Steps returns one Step per message.
func Steps(messages ...[]byte) (steps []Step) {
	for _, m := range messages {
		steps = append(steps, Step{Message: m})
	}
	return steps
}

// Saved is a fold whose state can be saved and restored.
type Saved interface {
	Apply(b *schema.Batch) error
	Snapshot(yield func(snapshot.Section) error) error
	Restore(section snapshot.Section) error
}

// Take applies steps to the fold. A fold without a Lost method does not see lost batches. A heartbeat with ends ticks a
// fold that has a Tick method: the steps before it are all that it waits for.
func Take(tb testing.TB, fold Saved, steps ...Step) {
	tb.Helper()
	decoder, batch := schema.NewDecoder(), &schema.Batch{}
	for _, s := range steps {
		if s.Lost > 0 {
			if aware, ok := fold.(interface {
				Lost(cluster, host, boot string, batches uint64)
			}); ok {
				aware.Lost(s.From.Cluster, s.From.Host, s.From.BootID, s.Lost)
			}
			continue
		}
		if err := decoder.Decode(s.Message, batch); err != nil {
			tb.Fatal(err)
		}
		if err := fold.Apply(batch); err != nil {
			tb.Fatal(err)
		}
		tick(fold, batch)
	}
}

func tick(fold Saved, b *schema.Batch) {
	ticking, ok := fold.(interface {
		Tick(h *schema.Header, through schema.KTime)
	})
	if !ok || len(b.Ends) == 0 {
		return
	}
	through := b.Ends[0].Through
	for _, end := range b.Ends {
		through = min(through, end.Through)
	}
	ticking.Tick(&b.Header, through)
}

// Sections returns copies of the fold's sections.
func Sections(tb testing.TB, fold Saved) (all []snapshot.Section) {
	tb.Helper()
	err := fold.Snapshot(func(s snapshot.Section) error {
		s.Data = bytes.Clone(s.Data)
		all = append(all, s)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Restore restores sections into fold and returns fold.
func Restore[F Saved](tb testing.TB, fold F, sections []snapshot.Section) F {
	tb.Helper()
	for _, s := range sections {
		if err := fold.Restore(s); err != nil {
			tb.Fatal(err)
		}
	}
	return fold
}
