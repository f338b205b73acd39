package replay

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema/recording"
)

// Pace says when messages are due.
type Pace struct {
	Speed   float64       // 1: as they were stored; 2: in half the time; 0: as fast as possible
	MaxIdle time.Duration // longest pause between two messages; 0: no limit
}

// receiver takes messages. Their data are valid until it returns.
type receiver func([]recording.Message) error

const (
	mostMessages = 256
	mostBytes    = 1 << 20
)

// Stats are the figures of a replay.
type Stats struct {
	Messages uint64
	First    time.Time // when NATS stored the first replayed message
	Last     time.Time // when NATS stored the latest one
	Elapsed  time.Duration
	Behind   time.Duration // the longest by which a message was late
}

// player gives the messages of a file to a receiver when they are due.
type player struct {
	file     *File
	schedule schedule
	to       receiver

	group []recording.Message // that are due
	data  []byte              // of the group
	due   time.Time           // of its first message

	mu    sync.Mutex
	stats Stats
}

func newPlayer(f *File, pace Pace, to receiver) *player {
	return &player{file: f, to: to, schedule: schedule{speed: pace.Speed, maxIdle: pace.MaxIdle},
		data: make([]byte, 0, 2*mostBytes)}
}

// run plays the file. It ends early when ctx ends.
func (p *player) run(ctx context.Context) error {
	for m, err := range p.messages() {
		if err != nil {
			return err
		}
		due := p.schedule.due(m.Stored, time.Now())
		if p.schedule.speed > 0 && time.Until(due) > 0 {
			if err := p.flush(); err != nil || !bus.Sleep(ctx, time.Until(due)) {
				return err
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := p.add(m, due); err != nil {
			return err
		}
	}
	return p.flush()
}

func (p *player) messages() iter.Seq2[*recording.Message, error] {
	if p.schedule.speed == 0 {
		return p.file.inOrder()
	}
	return p.file.inTimeOrder()
}

// add adds a message to the group, whose data it copies.
func (p *player) add(m *recording.Message, due time.Time) error {
	if len(p.group) == mostMessages || len(p.group) > 0 && len(p.data)+len(m.Data) > mostBytes {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if len(p.group) == 0 {
		p.due = due
	}
	from := len(p.data)
	p.data = append(p.data, m.Data...)
	p.group = append(p.group, *m)
	p.group[len(p.group)-1].Data = p.data[from:len(p.data):len(p.data)]
	return nil
}

// flush gives the group to the receiver.
func (p *player) flush() error {
	if len(p.group) == 0 {
		return nil
	}
	p.count()
	err := p.to(p.group)
	p.group, p.data = p.group[:0], p.data[:0]
	return err
}

func (p *player) count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, now := &p.stats, time.Now()
	for i := range p.group {
		stored := p.group[i].Stored
		if s.First.IsZero() || stored.Before(s.First) {
			s.First = stored
		}
		if stored.After(s.Last) {
			s.Last = stored
		}
	}
	s.Messages += uint64(len(p.group))
	if p.schedule.speed > 0 {
		s.Behind = max(s.Behind, now.Sub(p.due))
	}
	s.Elapsed = now.Sub(p.schedule.began)
}

// Stats returns the figures so far. Any goroutine may call it at any time.
func (p *player) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}
