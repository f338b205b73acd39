package anomaly

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
)

// Rules and severities, as spelled in alerts and labels.
const (
	RuleAllocSize = "alloc_size"
	RuleOOM       = "oom"
	rules         = 2

	Warning  = "warning"
	Critical = "critical"
)

// Alert is one finding. Its JSON form is published: fields may be added, never renamed.
type Alert struct {
	Time       time.Time `json:"time"` // return time of the call, wall clock, RFC 3339
	Rule       string    `json:"rule"`
	Severity   string    `json:"severity"`
	Host       string    `json:"host"`
	Cluster    string    `json:"cluster"`
	PID        uint32    `json:"pid"`
	Start      time.Time `json:"start"` // start of the process, wall clock
	Comm       string    `json:"comm"`
	Container  string    `json:"container"` // "": outside containers
	UID        uint32    `json:"uid"`
	TID        uint32    `json:"tid"` // the thread that made the call
	ThreadComm string    `json:"thread_comm"`
	Address    string    `json:"address"` // hexadecimal with 0x; the handle of VMM memory; "": nothing was allocated
	Bytes      uint64    `json:"bytes"`   // requested
	GPU        string    `json:"gpu"`     // UUID; "": unknown
	Symbol     string    `json:"symbol"`  // the driver function called
	Value      float64   `json:"value"`   // the judged value: bytes
	Baseline   float64   `json:"baseline"`
	Score      float64   `json:"score"`   // alloc_size: robust z-score; oom: 0
	Repeats    uint64    `json:"repeats"` // equal findings within the cooldown, so far
	Message    string    `json:"message"`
	Evidence   Evidence  `json:"evidence"`
}

// Evidence names the batch that contains the finding.
type Evidence struct {
	Host string `json:"host"`
	Boot string `json:"boot"`
	Seq  uint64 `json:"seq"`
}

// alert returns an Alert with every field that is the same for all rules.
func (d *Detector) alert(e *event, rule, severity string) Alert {
	b, p := e.batch, e.process
	thread := &b.Threads[e.Thread]
	a := Alert{
		Time: b.Wall(e.returned()), Rule: rule, Severity: severity,
		Host: b.Host, Cluster: b.Cluster, PID: p.ID.PID, Start: p.Start, Comm: p.Comm, Container: p.Container,
		UID: p.UID,
		TID: thread.TID, ThreadComm: thread.Comm, Bytes: e.Bytes, Symbol: b.Calls[e.Call].Symbol,
		Value:    float64(e.Bytes),
		Evidence: Evidence{Host: b.Host, Boot: b.BootID, Seq: b.Seq},
	}
	if e.Ptr != 0 {
		a.Address = fmt.Sprintf("%#x", e.Ptr)
	}
	if e.GPU > 0 {
		a.GPU = b.GPUs[e.GPU-1].UUID
	}
	return a
}

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

const maxAlerts = 1000

// history keeps the newest alerts. Each shard numbers its alerts from 0, so after hosts of several shards were joined
// only the number and the host together identify an alert.
type history struct {
	kept  []numbered // ordered by number, then host
	total uint64
}

type numbered struct {
	number uint64
	Alert
}

func (a *Alert) host() snapshot.HostID { return snapshot.HostID{Cluster: a.Cluster, Host: a.Host} }

// add stores an alert and returns its number, the highest so far.
func (h *history) add(a Alert) uint64 {
	n := h.total
	h.insert(numbered{n, a})
	return n
}

// insert stores an alert in order. It returns false if the host already has an alert of that number. If the history is
// full, the lowest number is dropped.
func (h *history) insert(a numbered) bool {
	i, taken := h.find(a.number, a.host())
	if taken || a.number+1 == 0 {
		return false
	}
	h.total = max(h.total, a.number+1)
	h.kept = slices.Insert(h.kept, i, a)
	if len(h.kept) > maxAlerts {
		h.kept = slices.Delete(h.kept, 0, 1)
	}
	return true
}

// repeat counts a repetition of alert n of a host, if the alert is still kept.
func (h *history) repeat(n uint64, host snapshot.HostID) {
	if i, kept := h.find(n, host); kept {
		h.kept[i].Repeats++
	}
}

func (h *history) find(n uint64, host snapshot.HostID) (int, bool) {
	return slices.BinarySearchFunc(h.kept, n, func(a numbered, n uint64) int {
		return cmp.Or(cmp.Compare(a.number, n), a.host().Compare(host))
	})
}
