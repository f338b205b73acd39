package pipeline

import (
	"context"
	"slices"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/record"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// recorder records the messages that the pipeline stores.
type recorder struct {
	*record.Recorder
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// Record records the messages that are stored from now on into a file. Call it before Start. The selection of the file
// names the kinds that the producer watches: a kind without events is then known to have had none.
func (p *Pipeline) Record(path string) error {
	r := &recorder{ended: make(chan struct{})}
	selection := recording.Selection{Kinds: append(slices.Clone(p.kinds), schema.KindHost, schema.KindRank)}
	r.Recorder = record.New(record.Options{JetStream: p.js, Selection: selection, Path: path, Drain: drainTime,
		Log: p.log})
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	p.recorder = r
	go func() {
		defer close(r.ended)
		r.err = r.Run(ctx)
		select {
		case <-r.Ready(): // the run goes on without it
			if r.err != nil {
				p.log.Error("recording failed", "file", path, "err", r.err)
			}
		default:
		}
	}()
	select {
	case <-r.Ready():
		return nil
	case <-r.ended:
		return r.err
	}
}

// EndRecording records the last messages and closes the file. Call it after Drain. Without Record it does nothing.
func (p *Pipeline) EndRecording() error {
	r := p.recorder
	if r == nil {
		return nil
	}
	r.stop()
	<-r.ended
	if r.err != nil {
		return r.err
	}
	s := r.Stats()
	if err := s.Lost(); err != nil {
		return app.Incomplete(err)
	}
	return nil
}
