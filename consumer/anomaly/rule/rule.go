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

// Rule finds one kind of anomaly. Its methods are called with the lock of the fold held.
type Rule interface {
	// Kinds are those of the batches that it needs, beside memory.
	Kinds() []schema.Kind
	// Event sees a notable memory event, in order.
	Event(e *Event)
	// Window sees the counts of a process in one window. All windows of a process come in order.
	Window(w *Window)
	// Tick comes after the windows that end at its time or before.
	Tick(t *Tick)
}

// What is the subject of an Event.
type What uint8

// Events.
const (
	Allocated What = iota // a large allocation, or any while the State asks for all
	Failed                // an allocation failed for lack of memory
	Freed                 // a large allocation ended
	Ended                 // the process ended
)

// Event is a notable memory event. It is valid until Event returns.
type Event struct {
	schema.Memory
	What    What
	OnHost  bool // pinned or registered host memory
	Key     uint64
	GPU     int // of the State
	Batch   *schema.Batch
	Process *Process
	Host    *Host
}

// returned is when the call returned: an allocation takes effect then.
func (e *Event) returned() schema.KTime { return e.Time + schema.KTime(e.Duration) }

func (e *Event) wall() time.Time { return e.Batch.Wall(e.returned()) }

// about returns an alert with the facts of the call.
func (e *Event) about() alert.Alert {
	a := alert.About(&e.Process.Info)
	thread := &e.Batch.Threads[e.Thread]
	a.TID, a.ThreadComm, a.Bytes, a.Symbol = thread.TID, thread.Comm, e.Bytes, e.Batch.Calls[e.Call].Symbol
	a.Since, a.Value, a.GPU = e.wall(), float64(e.Bytes), e.Process.State.UUID(e.GPU)
	a.Evidence = alert.EvidenceOf(&e.Batch.Header)
	if e.Ptr != 0 {
		a.Address = fmt.Sprintf("%#x", e.Ptr)
	}
	return a
}

// Tick says that everything before Through is complete on a host.
type Tick struct {
	*schema.Header // for identity and clock
	Host           *Host
	Through        schema.KTime
	Processes      []*Process // of this boot
}

func (t *Tick) now() time.Time { return t.Wall(t.Through) }

func (t *Tick) id() snapshot.HostID { return snapshot.HostID{Cluster: t.Cluster, Host: t.Header.Host} }

// Window is one process in one complete window.
type Window struct {
	*Tick
	Process  *Process
	Counts   Counts
	Complete bool // no event of it was lost

	index Index
	spans spans
}

// about returns an alert about the process, whose batches of a kind begin with from.
func (w *Window) about(kind schema.Kind, from uint64) alert.Alert {
	a := alert.About(&w.Process.Info)
	to := w.spans[kind].to
	h := w.Host
	a.Evidence = alert.Evidence{Boot: h.boot, Run: h.run, Kind: kind.String(), Seq: to, SeqFrom: from, SeqTo: to}
	return a
}

func (w *Window) end() time.Time { return w.Wall(schema.KTime(w.index+1) * schema.KTime(windowLength)) }

// Set holds the rules that are on and the state that they share.
type Set struct {
	book    *alert.Book
	exclude alert.Exclude
	rules   []Rule
	off     []string // names of the others
	of      func([]*Process, snapshot.HostID) []*Process
	scratch []*Process
	entries int // large allocations of all processes
}

// New returns the rules that are on. They raise their alerts in book. processes appends the processes of a host.
func New(cfg Config, book *alert.Book, processes func([]*Process, snapshot.HostID) []*Process) *Set {
	cfg = cfg.withDefaults()
	s := &Set{book: book, exclude: cfg.Exclude, of: processes}
	for _, r := range []struct {
		name string
		mode Mode
		make func(base) Rule
	}{
		{"alloc_size", cfg.AllocSize.Mode, func(b base) Rule { return &allocSize{b, cfg.AllocSize, cfg.Warmup} }},
		{"oom", cfg.OOM.Mode, func(b base) Rule { return &oom{b, cfg.OOM} }},
		{"alloc_rate", cfg.AllocRate.Mode, func(b base) Rule { return &allocRate{b, cfg.AllocRate} }},
		{"launch_collapse", cfg.LaunchCollapse.Mode, func(b base) Rule {
			return &launchCollapse{b, cfg.LaunchCollapse}
		}},
		{"copy_regression", cfg.CopyRegression.Mode, func(b base) Rule {
			return &copyRegression{b, cfg.CopyRegression}
		}},
		{"pageable_copies", cfg.PageableCopies.Mode, func(b base) Rule {
			return &pageableCopies{b, cfg.PageableCopies}
		}},
		{"telemetry_loss", cfg.TelemetryLoss.Mode, func(b base) Rule { return &telemetryLoss{b, cfg.TelemetryLoss} }},
	} {
		if r.mode != Off {
			s.rules = append(s.rules, r.make(base{r.name, r.mode, s}))
		} else {
			s.off = append(s.off, r.name)
		}
	}
	if cfg.OOM.Mode == Off {
		s.off = append(s.off, recovered)
	}
	return s
}

// Cooldown returns the cool-down of a Config.
func (c Config) CooldownTime() time.Duration { return c.withDefaults().Cooldown }

// Kinds returns the kinds of batches that the rules need.
func (s *Set) Kinds() []schema.Kind {
	kinds := []schema.Kind{schema.KindMemory, schema.KindHost}
	for _, r := range s.rules {
		kinds = append(kinds, r.Kinds()...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Event hands an event to every rule.
func (s *Set) Event(e *Event) {
	for _, r := range s.rules {
		r.Event(e)
	}
	if e.What == Ended {
		s.book.ClearProcess(e.Process.ID, e.Batch.Wall(e.Time), "the process ended", func(rule string) bool {
			return strings.HasPrefix(rule, "oom")
		})
	}
}

// base is what all rules have: a rule embeds it, and overrides the methods that it needs.
type base struct {
	name string
	mode Mode
	set  *Set
}

func (*base) Kinds() []schema.Kind { return nil }
func (*base) Event(*Event)         {}
func (*base) Window(*Window)       {}
func (*base) Tick(*Tick)           {}

func (b *base) key(p *Process, gpu string) alert.Key {
	return alert.Key{Rule: b.name, Process: p.ID, GPU: gpu}
}

// fire raises an alert about a process, unless it is excluded.
func (b *base) fire(p *Process, k alert.Key, at time.Time, seq uint64, build func() alert.Alert) bool {
	if b.set.exclude.Excludes(k.Rule, &p.Info) {
		b.suppress("excluded")
		return false
	}
	return b.raise(k, at, seq, build)
}

func (b *base) raise(k alert.Key, at time.Time, seq uint64, build func() alert.Alert) bool {
	return b.set.book.Fire(k, at, seq, func() alert.Alert {
		a := build()
		if b.mode == Observe {
			a.Severity = alert.Info
		}
		return a
	})
}

func (b *base) suppress(reason string) { b.set.book.Suppress(b.name, reason) }

// iec formats bytes with binary units.
func iec(bytes float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.4g %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.4g TiB", bytes)
}
