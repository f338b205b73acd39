package answer

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// statusRow is how one shard of a fold is doing.
type statusRow struct {
	Hosts      int
	Lag        uint64    // messages that are stored and not read
	Checkpoint time.Time // when the last one was written; zero: the state is not saved
	Missing    uint64    // batches that were lost
	Invalid    uint64    // batches that the fold could not use
	Lost       [schema.NumLosses]uint64
}

func statusOf(p *Part) statusRow {
	s := p.Reader.Stats()
	return statusRow{
		Hosts: len(p.Reader.Hosts()), Lag: s.Lag, Checkpoint: p.Checkpoint, Missing: s.Missing,
		Invalid: s.Invalid + s.Refused, Lost: p.Reader.Lost(),
	}
}
