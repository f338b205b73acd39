package process

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Other is the comm of everything above a limit of series.
const Other = "other"

// Label returns a name as valid UTF-8, which Prometheus requires of label values.
func Label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// Workload identifies the counters of one program on one GPU. It has no PID, because a counter with a PID would start
// at 0 with every restart. All strings except those of the HostID are labels; "" is unknown, or none.
type Workload struct {
	snapshot.HostID
	GPU       string // ordinal in the process's numbering
	UUID      string
	Pod       string
	Container string
	Unit      string
	User      string
	Job       string
	Comm      string
}

// WorkloadOf returns the workload of a process without a GPU.
func WorkloadOf(i *Info) Workload {
	return Workload{
		HostID: snapshot.HostID{Cluster: i.ID.Cluster, Host: i.ID.Host}, Pod: Label(i.Pod),
		Container: Label(i.Container), Unit: Label(i.Unit), User: Label(i.User), Job: Label(i.Job), Comm: Label(i.Comm),
	}
}

// NewWorkload returns the workload of a process in a batch. gpu is 0 if unknown, otherwise 1 + an index into b.GPUs.
func NewWorkload(b *schema.Batch, i *Info, gpu int) Workload {
	w := WorkloadOf(i)
	w.HostID = snapshot.HostID{Cluster: b.Cluster, Host: b.Host}
	if gpu > 0 {
		w.GPU, w.UUID = strconv.Itoa(int(b.GPUs[gpu-1].Ordinal)), Label(b.GPUs[gpu-1].UUID)
	}
	return w
}

// Owner returns the host of the workload.
func (w Workload) Owner() snapshot.HostID { return w.HostID }

// Other returns the workload of everything above the limit of series. It belongs to no host.
func (w Workload) Other() Workload { return Workload{Comm: Other} }

// Page returns the workload as metrics show it. Names of hosts that are not UTF-8 may become the same label.
func (w Workload) Page() Workload {
	w.Cluster, w.Host = Label(w.Cluster), Label(w.Host)
	return w
}

// Labels returns the values of metric.Workload, and more.
func (w Workload) Labels(more ...string) []string {
	return append([]string{w.Cluster, w.Host, w.GPU, w.UUID, w.Pod, w.Container, w.Unit, w.User, w.Job, w.Comm},
		more...)
}

// Compare orders by host, then by labels.
func (w Workload) Compare(to Workload) int {
	return cmp.Or(w.HostID.Compare(to.HostID), cmp.Compare(w.GPU, to.GPU), cmp.Compare(w.UUID, to.UUID),
		cmp.Compare(w.Pod, to.Pod), cmp.Compare(w.Container, to.Container), cmp.Compare(w.Unit, to.Unit),
		cmp.Compare(w.User, to.User), cmp.Compare(w.Job, to.Job), cmp.Compare(w.Comm, to.Comm))
}

// MinWorkload is the least number of bytes that Code writes.
const MinWorkload = 8

// Code passes over the labels of a workload of a host.
func (w *Workload) Code(c *snapshot.Codec, id snapshot.HostID) {
	w.HostID = id
	CodeLabels(c, &w.GPU, &w.UUID)
	codePrivate(c, schema.PrivatePod, &w.Pod)
	codePrivate(c, schema.PrivateContainer, &w.Container)
	codePrivate(c, schema.PrivateUnit, &w.Unit)
	codePrivate(c, schema.PrivateUser, &w.User)
	codePrivate(c, schema.PrivateJob, &w.Job)
	CodeLabels(c, &w.Comm)
}

// CodeLabels passes over labels. It refuses a string that Label would change.
func CodeLabels(c *snapshot.Codec, labels ...*string) {
	for _, label := range labels {
		codePrivate(c, schema.PrivateNone, label)
	}
}

// codePrivate passes over a label that may be private.
func codePrivate(c *snapshot.Codec, what schema.Private, label *string) {
	if what == schema.PrivateNone {
		c.String(label)
	} else {
		c.Private(what, label)
	}
	if c.Reading() && !utf8.ValidString(*label) {
		c.Fail("label %q is not valid UTF-8", *label)
	}
}
