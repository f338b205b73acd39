package leak

import (
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/trend"
)

// trendGauge is what metrics show of the verdicts of one series.
type trendGauge struct {
	suspected, perHour uint64
	oldest             time.Duration // age
	judged             bool
	states             [trend.Unknown + 1]uint64 // devices by verdict
}

// addTrends adds the verdicts of a process.
func (s *scrape) addTrends(t *Tracker, p *proc) {
	for i := range p.State.devices {
		d := &p.State.devices[i]
		id := pageOf(p)
		id.GPU, id.UUID = ordinal(d.gpu), process.Label(p.State.gpuUse(d.gpu).UUID)
		if _, known := s.trends[id]; !known && len(s.trends) >= process.MaxSeries-1 {
			id = s.other("gputap_leak_verdicts")
		}
		g := s.trends[id]
		suspected, perHour := d.suspected(), d.verdict.PerHour
		if v, known := t.tensors(p, d); known && graver(v.State, d.verdict.State) {
			suspected, perHour, g.judged = v.SuspectBytes, v.PerHour, true
			for i := range v.Groups {
				g.oldest = max(g.oldest, p.State.boot.wall(d.judged).Sub(v.Groups[i].Oldest))
			}
		}
		g.suspected += suspected
		g.perHour += perHour
		g.judged = g.judged || d.verdict.State == trend.Steady || d.verdict.State.Grows()
		for i := range d.groups {
			g.oldest = max(g.oldest, time.Duration(d.judged-d.groups[i].Oldest))
		}
		g.states[d.verdict.State]++
		s.trends[id] = g
	}
}
