package consumer

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// Why batches from before the first one of a run do not count as lost.
const (
	reasonLateStart = "late_start" // ReaderOptions ask for a later start
	reasonRetention = "retention"  // retention removed them, or they went to shards of an earlier generation
)

// Stats counts the messages of a Reader.
type Stats struct {
	Batches         uint64                  // applied
	Events          [schema.NumKinds]uint64 // in them, by kind
	Duplicates      uint64
	Invalid         uint64 // not a batch, or of another host than the subject names
	Refused         uint64 // Apply failed
	Unknown         uint64 // of a kind that this version does not know
	Gaps            uint64 // holes in seq
	Missing         uint64 // batches in those holes: lost
	Retention       uint64 // batches that retention removed, or that went to shards of an earlier generation
	LateStart       uint64 // batches from before the start that ReaderOptions ask for
	DeadLetters     uint64
	DeadLettersLost uint64    // could not be copied
	Lag             uint64    // messages that are stored and not read
	LastEvent       time.Time // latest event of any host
}

func (s *Stats) count(o outcome, b *schema.Batch) {
	switch o {
	case outcomeDuplicate:
		s.Duplicates++
	case outcomeInvalid:
		s.Invalid++
	case outcomeRefused:
		s.Refused++
	case outcomeUnknown:
		s.Unknown++
	case outcomeOK:
		s.Batches++
		s.Events[b.Kind] += uint64(b.Events)
		if last := b.Wall(b.Last); b.Events > 0 && last.After(s.LastEvent) {
			s.LastEvent = last
		}
	}
}

// countAbsent counts batches in a hole of seq; reason "" means that they are lost.
func (s *Stats) countAbsent(reason string, batches uint64) {
	switch {
	case batches == 0:
	case reason == reasonLateStart:
		s.LateStart += batches
	case reason == reasonRetention:
		s.Retention += batches
	default:
		s.Gaps++
		s.Missing += batches
	}
}
