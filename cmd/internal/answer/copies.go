package answer

import (
	"iter"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
)

func (s *Snapshot) addCopies(q *bandwidth.Process) {
	p := s.process(&q.Info)
	p.calls(q.Calls)
	for _, c := range q.Copies {
		sums := copyOf(&c)
		p.Copies[c.Word()] = &sums
	}
	p.Recorded += q.Recorded
	p.Waits = Waits{Calls: q.Waits.Calls, Seconds: float64(q.Waits.NS) / 1e9}
}

func copyOf(c *bandwidth.DirectionUse) Copy {
	return Copy{c.Calls, c.Bytes, float64(c.BusyNS) / 1e9, c.AsyncCalls, c.AsyncBytes}
}

// copyRows are the processes that copied the most bytes first.
func copyRows(m *bandwidth.Meter, q *query.Question) (iter.Seq[any], int) {
	rows := selected(m.Report(), q, func(p *bandwidth.Process) *process.Info { return &p.Info })
	return largest(rows, q.Limit, func(p *bandwidth.Process) (n uint64) {
		for i := range p.Copies {
			n += p.Copies[i].Bytes
		}
		return n
	})
}
