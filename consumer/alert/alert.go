package alert

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Severities and states, as alerts and labels spell them.
const (
	Info     = "info"
	Warning  = "warning"
	Critical = "critical"

	Firing  = "firing"
	Cleared = "cleared"
)

// Alert is one finding. Its JSON form is published: fields may be added, never renamed.
type Alert struct {
	ID         string    `json:"id"` // the same while it fires and when it clears
	State      string    `json:"state"`
	Time       time.Time `json:"time"`  // when it fired or cleared, event time as wall clock, RFC 3339
	Since      time.Time `json:"since"` // when the finding began
	Rule       string    `json:"rule"`
	Severity   string    `json:"severity"`
	Host       string    `json:"host"`
	Cluster    string    `json:"cluster"`
	PID        uint32    `json:"pid"`            // 0: the alert is about the host
	Start      time.Time `json:"start,omitzero"` // start of the process, wall clock
	Comm       string    `json:"comm"`
	Container  string    `json:"container"` // "": outside containers
	Pod        string    `json:"pod"`       // UID of the Kubernetes pod; "": outside pods
	Unit       string    `json:"unit"`      // systemd unit; "": without one
	Job        string    `json:"job"`       // "": outside jobs
	UID        uint32    `json:"uid"`
	User       string    `json:"user"` // name of the UID; "": unknown
	TID        uint32    `json:"tid"`  // the thread that made the call; 0: the alert is not about one call
	ThreadComm string    `json:"thread_comm"`
	Address    string    `json:"address"` // hexadecimal with 0x; the handle of VMM memory; "": nothing was allocated
	Bytes      uint64    `json:"bytes"`   // requested or concerned
	GPU        string    `json:"gpu"`     // UUID; "": unknown
	Symbol     string    `json:"symbol"`  // the driver function called
	Value      float64   `json:"value"`   // the judged value, in the unit of the rule
	Baseline   float64   `json:"baseline"`
	Score      float64   `json:"score"` // value against baseline; 0: the rule has none
	Repeats    uint64    `json:"repeats"`
	Message    string    `json:"message"`
	Evidence   Evidence  `json:"evidence"`
}

// Evidence names the batches that contain the finding: those of one host, producer run and kind.
type Evidence struct {
	Host    string `json:"host"`
	Boot    string `json:"boot"`
	Run     uint64 `json:"run"`
	Kind    string `json:"kind"`
	Seq     uint64 `json:"seq"` // the batch that decided
	SeqFrom uint64 `json:"seq_from"`
	SeqTo   uint64 `json:"seq_to"`
}

// EvidenceOf returns the evidence of one batch.
func EvidenceOf(h *schema.Header) Evidence {
	return Evidence{Host: h.Host, Boot: h.BootID, Run: h.Run, Kind: h.Kind.String(), Seq: h.Seq, SeqFrom: h.Seq,
		SeqTo: h.Seq}
}

// About returns an Alert with the fields that name a process.
func About(i *process.Info) Alert {
	return Alert{
		Host: i.ID.Host, Cluster: i.ID.Cluster, PID: i.ID.PID, Start: i.Start, Comm: i.Comm, Container: i.Container,
		Pod: i.Pod, Unit: i.Unit, Job: i.Job, UID: i.UID, User: i.User,
	}
}

// HostID returns the host that the alert is about.
func (a *Alert) HostID() snapshot.HostID { return snapshot.HostID{Cluster: a.Cluster, Host: a.Host} }

// Subject returns the rule, and the host if the alert is about one: "oom on gpu-1".
func (a *Alert) Subject() string {
	if a.Host == "" {
		return a.Rule
	}
	return a.Rule + " on " + a.Host
}

// Key tells findings apart. At most one alert of a Key fires at a time.
type Key struct {
	Rule    string
	Process schema.ProcessID // without PID: the host itself
	GPU     string           // UUID; "": unknown, or the finding is not about one GPU
	Detail  string           // tells apart findings of one rule, such as the direction of copies
	Job     string           // the finding is about a job: its fold keeps the state of jobs, not of hosts
}

// HostID returns the host of the finding, or the job, under which a Book keeps it.
func (k *Key) HostID() snapshot.HostID {
	return snapshot.HostID{Cluster: k.Process.Cluster, Host: cmp.Or(k.Job, k.Process.Host)}
}

// ID returns the id of the alert of a Key that holds since a time.
func (k *Key) ID(since time.Time) string {
	p := &k.Process
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %d %q %q %d", k.Rule, p.Cluster, p.Host, p.BootID, p.PID,
		p.Start, k.GPU, cmp.Or(k.Detail, k.Job), since.UnixNano()))
	return hex.EncodeToString(sum[:8])
}

// Compare orders alerts by time, then by host and id. Oldest come first.
func (a *Alert) Compare(to *Alert) int {
	return cmp.Or(a.Time.Compare(to.Time), a.HostID().Compare(to.HostID()), cmp.Compare(a.ID, to.ID))
}
