package pipeline

import (
	"slices"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/local"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/query"
)

// Listen makes the socket through which commands of this host ask the folds. Without a socket everything else works.
func (p *Pipeline) Listen() {
	socket, err := local.Listen(p.server.Pipe, p.log)
	if err != nil {
		p.log.Warn("commands of this host cannot ask this run", "err", err)
		return
	}
	p.socket = socket
	p.log.Debug("commands of this host may ask this run", "socket", socket.Path())
}

// services returns a service for each fold, as consumers of a fleet have it. The one of leak includes coverage.
func (p *Pipeline) services() (list []*query.Service) {
	hosts := len(p.folds) - 1
	memory := slices.IndexFunc(p.folds, func(f fold.Fold) bool { _, is := f.(*leak.Tracker); return is })
	for i, f := range p.folds {
		part := &answer.Part{Reader: p.consumers[i], Folds: []consumer.Fold{f}}
		name := f.Name()
		switch f.(type) {
		case *fold.Anomalies:
			part.Folds = f.(*fold.Anomalies).Parts()
		case *leak.Tracker:
			part.Folds = append(part.Folds, p.folds[hosts])
		case *coverage.Fold:
			if memory >= 0 {
				continue
			}
			name = "leak"
		}
		list = append(list, query.NewService(query.Options{
			Fold: name, Instance: "run", Version: app.Version(),
			Shards: func() []query.Shard { return []query.Shard{{Number: p.shard, Epoch: 1, Take: part.Take}} },
		}, p.nc, p.log))
	}
	return list
}
