package fold

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/query"
)

// questions returns the service that answers for the shards of a consumer. silent watches for silent hosts; it may be
// nil.
func questions(c *consumer.Consumer, name string, silent *silence, nc *nats.Conn, log *slog.Logger) *query.Service {
	return query.NewService(query.Options{
		Fold: name, Instance: c.Instance(), Version: app.Version(),
		Shards: func() (list []query.Shard) {
			for _, s := range c.Shards() {
				part := &answer.Part{Reader: s.Reader, Folds: Parts(s.Fold), Checkpoint: s.Checkpoint}
				if silent != nil {
					part.Silent = func() []alert.Alert { return silent.alerts(s.Number) }
				}
				list = append(list, query.Shard{Number: s.Number, Epoch: s.Epoch, Take: part.Take})
			}
			return list
		},
	}, nc, log)
}

// Parts returns the folds that a fold is made of.
func Parts(f consumer.Fold) []consumer.Fold {
	if m, ok := f.(interface{ Parts() []consumer.Fold }); ok {
		return m.Parts()
	}
	return []consumer.Fold{f}
}

// background runs a service until stop is called.
func background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { run(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}
