package export

import (
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema/recording"
)

// reader gives the selected events of messages to a sink.
type reader struct {
	batches *source.Batches
	to      sink
}

func (r *reader) read(m *recording.Message) error {
	b := r.batches.Of(m)
	if b == nil {
		return nil
	}
	selects, threads := r.batches.Selects(b), b.Thread()
	for i := range b.Events {
		if !selects[b.Threads[threads.At(i)].Process] {
			continue
		}
		if err := r.to.event(b, i); err != nil {
			return err
		}
	}
	return nil
}
