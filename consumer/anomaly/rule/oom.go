package rule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// oom finds processes that ran out of memory and did not recover.
//
// PyTorch's allocator frees its cache and tries again, and programs try smaller batches. So a failed allocation waits:
// if one like it succeeds within Recover, the finding is oom_recovered, an information. The same holds if the process
// goes on launching kernels: then a smaller batch fits into memory that its allocator holds already. If the process
// ends before, or the time passes, it is critical. An allocation is like it if it takes memory of the same GPU, or
// pinned memory, and is at least a quarter as large.
type oom struct {
	base
	OOM
}

func (*oom) Kinds() []schema.Kind { return []schema.Kind{schema.KindLaunch, schema.KindTensor} }

const (
	recovered   = "oom_recovered"
	maxFailures = 4               // of one process: by GPU, and for pinned memory
	oomQuiet    = 5 * time.Minute // without a further failure, until an alert clears
	oomShown    = time.Minute     // how long oom_recovered fires
)

// failure is the failed allocations of one process on one GPU, or of pinned memory.
type failure struct {
	onHost bool
	gpu    int
	bytes  uint64 // the largest request
	at     schema.KTime
	last   schema.KTime
	gaps   uint64 // Host.gaps at the first

	// At the last, or at the last before the alert fired:
	held    uint64   // bytes of the process's large allocations there
	others  []holder // the largest other holders
	tensors tensors

	fired bool
	alert alert.Alert // about the first
}

func (r *oom) Event(e *Event) {
	s := &e.Process.State
	switch e.What {
	case Failed:
		r.failed(e, s)
	case Allocated:
		r.allocated(e, s)
	case Ended:
		for i := range s.failures {
			if f := &s.failures[i]; !f.fired {
				r.critical(e.Process, f, e.Batch.Wall(e.Time), e.Host, "before the process ended")
			}
		}
	}
}

func (f *failure) concerns(e *Event) bool {
	return f.onHost == e.OnHost && (f.onHost || f.gpu == e.GPU)
}

func (r *oom) failed(e *Event, s *State) {
	i := slices.IndexFunc(s.failures, func(f failure) bool { return f.concerns(e) })
	switch {
	case i < 0 && len(s.failures) == maxFailures:
		r.suppress("limit")
		return
	case i < 0:
		s.failures = append(s.failures, failure{onHost: e.OnHost, gpu: e.GPU, bytes: e.Bytes, at: e.returned(),
			last: e.returned(), gaps: e.Host.gaps, alert: e.about()})
		r.note(e, &s.failures[len(s.failures)-1])
		return
	}
	f := &s.failures[i]
	f.bytes, f.last = e.Bytes, max(f.last, e.returned())
	if f.fired {
		r.fire(e.Process, r.keyOf(e.Process, f), e.wall(), e.Batch.Seq, func() alert.Alert { return f.alert })
		return
	}
	r.note(e, f)
	f.alert.Repeats++
	f.alert.Evidence.SeqTo = max(f.alert.Evidence.SeqTo, e.Batch.Seq)
	r.suppress("repeat")
}

// allocated ends the wait if the allocation is like the one that failed.
func (r *oom) allocated(e *Event, s *State) {
	s.failures = slices.DeleteFunc(s.failures, func(f failure) bool {
		if !f.concerns(e) || e.Bytes < f.bytes/4 {
			return false
		}
		if f.fired {
			r.set.book.Clear(r.keyOf(e.Process, &f), e.wall(), "an allocation of "+iec(float64(e.Bytes))+" succeeded")
			return true
		}
		r.recovered(e.Process, &f, e.wall(), e.Batch.Seq, fmt.Sprintf("%s later an allocation of %s succeeded",
			secondsText(elapsed(f.at, e.returned())), iec(float64(e.Bytes))))
		return true
	})
}

// recovered raises the information. how completes the sentence "ran out of memory, and …".
func (r *oom) recovered(p *Process, f *failure, at time.Time, seq uint64, how string) {
	k := r.keyOf(p, f)
	k.Rule = recovered
	r.fire(p, k, at, seq, func() alert.Alert {
		a := f.alert
		a.Severity = alert.Info
		a.Message = fmt.Sprintf("%s, and %s. Nothing needs to be done, unless this happens often: then request less, "+
			"or free memory first.", f.request(), how)
		return a
	})
}

func (r *oom) keyOf(p *Process, f *failure) alert.Key {
	k := r.key(p, f.alert.GPU)
	if k.Detail = p.State.unnamed(f.gpu); f.onHost {
		k.GPU, k.Detail = "", "host"
	}
	return k
}

func (r *oom) Tick(t *Tick) {
	for _, p := range t.Processes {
		p.State.failures = slices.DeleteFunc(p.State.failures, func(f failure) bool {
			switch {
			case f.fired && elapsed(f.last, t.Through) >= oomQuiet:
				r.set.book.Clear(r.keyOf(p, &f), t.now(), "no allocation failed for five minutes")
				return true
			case !f.fired && elapsed(f.last, t.Through) >= r.Recover && p.State.launched > f.last:
				r.recovered(p, &f, t.now(), f.alert.Evidence.SeqTo, "the process went on launching kernels")
				return true
			}
			return false
		})
		for i := range p.State.failures {
			f := &p.State.failures[i]
			if !f.fired && elapsed(f.last, t.Through) >= r.Recover {
				r.critical(p, f, t.now(), t.Host, fmt.Sprintf("for %s", r.Recover))
			}
		}
	}
	r.set.book.ClearAged(t.id(), recovered, oomShown, t.now(), "it recovered a minute ago")
}

// critical raises the alert. until completes the sentence "nothing like it succeeded …".
func (r *oom) critical(p *Process, f *failure, at time.Time, h *Host, until string) {
	f.fired = true
	a := f.alert
	a.Severity = alert.Critical
	parts := []string{fmt.Sprintf("%s, and no allocation like it succeeded %s.", f.request(), until)}
	if h.gaps != f.gaps {
		a.Severity = alert.Warning
		parts = append(parts, "Events were lost meanwhile, so one may have succeeded.")
	}
	if f.onHost {
		parts = append(parts, "Check the host's free memory and locked memory, then request less.")
	} else {
		parts = append(parts, f.holders(&p.State), f.advice())
	}
	a.Message = strings.Join(parts, " ")
	f.alert = a
	r.fire(p, r.keyOf(p, f), at, a.Evidence.SeqTo, func() alert.Alert { return a })
}

// request describes the failed request.
func (f *failure) request() string {
	a, where := &f.alert, "GPU"
	if f.onHost {
		where = "pinned host"
	}
	times := ""
	if a.Repeats > 0 {
		times = " and once more"
		if a.Repeats > 1 {
			times = fmt.Sprintf(" and %d times more", a.Repeats)
		}
	}
	return fmt.Sprintf("%s (pid %d) on %s ran out of %s memory: %s requested with %s in thread %d (%s)%s", a.Comm,
		a.PID, a.Host, where, iec(a.Value), a.Symbol, a.TID, a.ThreadComm, times)
}

// tensors are the totals of PyTorch's allocator on one GPU.
type tensors struct {
	at                  schema.KTime // 0: it made no report
	allocated, reserved uint64
}

func (t *tensors) code(c *snapshot.Codec) {
	snapshot.Uint(c, &t.at)
	snapshot.Uint(c, &t.allocated, &t.reserved)
}

// advice says what to do. If PyTorch's allocator had more free memory than was requested, the memory is fragmented: the
// allocator could neither use it nor give it back to the driver. The allocator does not report what it gives back, so
// it holds at most what the process holds. Expandable segments request physical memory in pieces of at most 20 MiB and
// give back all that is free before they fail, so a cache that is larger than a piece proves nothing.
func (f *failure) advice() string {
	others := len(f.others) > 0 || f.held == 0 || f.alert.GPU == "" // another process may free memory
	switch {
	case f.tensors.at == 0 && others:
		return "Free memory on that GPU, or request less."
	case f.tensors.at == 0:
		return "Request less."
	}
	reserved := f.tensors.reserved
	if f.held > 0 {
		reserved = min(reserved, f.held)
	}
	cached := reserved - min(reserved, f.tensors.allocated)
	facts := fmt.Sprintf("PyTorch had %s allocated and %s reserved, so %s cached", iec(float64(f.tensors.allocated)),
		iec(float64(reserved)), iec(float64(cached)))
	text := fmt.Sprintf("Out of memory by use: %s, less than the %s requested. Request less", facts,
		iec(float64(f.bytes)))
	switch {
	case f.alert.Symbol == "cuMemCreate":
		text = fmt.Sprintf("Out of memory by use: %s. With expandable segments, PyTorch requests memory in pieces, so "+
			"the tensor may be far larger than %s. Request less", facts, iec(float64(f.bytes)))
	case cached >= f.bytes:
		return fmt.Sprintf("Fragmentation: %s, which is enough for the %s requested, but in pieces. Set "+
			"PYTORCH_ALLOC_CONF=expandable_segments:True, or allocate in fewer different sizes.", facts,
			iec(float64(f.bytes)))
	}
	if others {
		text += ", or free memory on that GPU"
	}
	return text + "."
}

func codeFailures(c *snapshot.Codec, s *State, id snapshot.HostID) {
	snapshot.List(c, &s.failures, 64, func(f *failure) {
		c.Bool(&f.onHost, &f.fired)
		c.Below(&f.gpu, len(s.gpus))
		snapshot.Uint(c, &f.bytes, &f.gaps, &f.held)
		codeHolders(c, &f.others)
		f.tensors.code(c)
		snapshot.Uint(c, &f.at, &f.last)
		f.alert.Code(c, id)
	})
	if len(s.failures) > maxFailures {
		c.Fail("more than %d failures", maxFailures)
	}
}

// secondsText is a duration up to some seconds, in one style: 61 µs, 8.13 ms, 2.5 s.
func secondsText(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", d.Seconds()*1e6)
	case d < 999_500*time.Microsecond: // more rounds to 1 s
		return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}
