package report

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/gputap/gputap/consumer/trend"
)

// State is ended; silent, if the host of the process is; growing or suspect, if the memory on some GPU is; running; or
// unknown without gputap-leak. It has a mark if not all calls of the process were seen.
func (p *Process) State() string {
	s := p.progress()
	if p.Evidence != "complete" {
		s += "," + p.Evidence
	}
	return s
}

func (p *Process) progress() string {
	switch {
	case p.lacks.memory:
		return Unknown
	case p.Ended:
		return "ended"
	case p.silent:
		return "silent"
	}
	s := "running"
	for i := range p.Verdicts {
		if v := &p.Verdicts[i]; v.Grows() && s != trend.Suspect.String() {
			s = v.State
		}
	}
	return s
}

// Growth returns the bytes by which the memory of a process grows in an hour, on GPUs on which it grows without end. It
// is nil, unknown, if the memory grows on no GPU that was judged and one was not: it is warming, or has lost events.
func (p *Process) Growth() *uint64 {
	sum, judged := uint64(0), true
	for i := range p.Verdicts {
		v := &p.Verdicts[i]
		switch {
		case v.Grows():
			sum += v.SlopeBytesPerHour
		case v.State != trend.Steady.String():
			judged = false
		}
	}
	if sum == 0 && !judged {
		return nil
	}
	return p.Memory(sum)
}

// Grows reports whether memory grows without end.
func (v *Verdict) Grows() bool {
	return v.State == trend.Suspect.String() || v.State == trend.Growing.String()
}

// BusyGPUs counts the GPUs on which a process holds memory.
func (p *Process) BusyGPUs() (n int) {
	for _, g := range p.GPUs {
		if g.LiveBytes > 0 {
			n++
		}
	}
	return n
}

// JobText returns the job of a process with its rank; "" outside jobs.
func (p *Process) JobText() string {
	if p.Rank == nil {
		return p.Job
	}
	return fmt.Sprintf("%s rank %d", p.Job, *p.Rank)
}

// UserText is the user name that the host knows, or the uid.
func (p *Process) UserText() string { return cmp.Or(p.User, strconv.FormatUint(uint64(p.UID), 10)) }
