package answer

import "github.com/gputap/gputap/consumer/bandwidth"

func (s *Snapshot) addCopies(report []bandwidth.Process) {
	for i := range report {
		q := &report[i]
		p := s.process(&q.Info)
		p.calls(q.Calls)
		for _, c := range q.Copies {
			p.Copies[c.Word()] = &Copy{c.Calls, c.Bytes, float64(c.BusyNS) / 1e9, c.AsyncCalls, c.AsyncBytes}
		}
		p.Recorded += q.Recorded
		p.Waits = Waits{Calls: q.Waits.Calls, Seconds: float64(q.Waits.NS) / 1e9}
	}
}
