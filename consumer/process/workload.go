package process

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Other is the comm of everything above a limit of series.
const Other = "other"

// Label returns a name as valid UTF-8, which Prometheus requires of label values.
func Label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// Workload identifies the counters of one program on one GPU. It has no PID, because a counter with a PID would start
// at 0 with every restart. All strings except those of the HostID are labels.
type Workload struct {
	snapshot.HostID
	GPU       string // ordinal in the process's numbering; "": unknown
	UUID      string
	Container string
	Comm      string
}

// NewWorkload returns the workload of a process in a batch. gpu is 0 if unknown, otherwise 1 + an index into b.GPUs.
func NewWorkload(b *schema.Batch, i *Info, gpu int) Workload {
	w := Workload{HostID: snapshot.HostID{Cluster: b.Cluster, Host: b.Host}, Container: Label(i.Container),
		Comm: Label(i.Comm)}
	if gpu > 0 {
		w.GPU, w.UUID = strconv.Itoa(int(b.GPUs[gpu-1].Ordinal)), Label(b.GPUs[gpu-1].UUID)
	}
	return w
}

// Owner returns the host of the workload.
func (w Workload) Owner() snapshot.HostID { return w.HostID }

// Other returns the workload of everything above the limit of series. It belongs to no host.
func (w Workload) Other() Workload { return Workload{Comm: Other} }

// Page returns the workload as metrics show it. They have no cluster: hosts of one name in two clusters share series.
func (w Workload) Page() Workload {
	w.Cluster, w.Host = "", Label(w.Host)
	return w
}

// Family describes a metric family with the labels of a workload and more.
func Family(name, help string, more ...string) *prometheus.Desc {
	labels := append([]string{"hostname", "gpu", "UUID", "container", "comm"}, more...)
	return prometheus.NewDesc(name, help, labels, nil)
}

// Labels returns the values of the labels of a Family.
func (w Workload) Labels(more ...string) []string {
	return append([]string{w.Host, w.GPU, w.UUID, w.Container, w.Comm}, more...)
}

// Compare orders by host, then by labels.
func (w Workload) Compare(to Workload) int {
	return cmp.Or(w.HostID.Compare(to.HostID), cmp.Compare(w.GPU, to.GPU), cmp.Compare(w.UUID, to.UUID),
		cmp.Compare(w.Container, to.Container), cmp.Compare(w.Comm, to.Comm))
}

// Code passes over the labels of a workload of a host.
func (w *Workload) Code(c *snapshot.Codec, id snapshot.HostID) {
	w.HostID = id
	CodeLabels(c, &w.GPU, &w.UUID, &w.Container, &w.Comm)
}

// CodeLabels passes over labels. It refuses a string that Label would change.
func CodeLabels(c *snapshot.Codec, labels ...*string) {
	for _, label := range labels {
		if c.String(label); c.Reading() && !utf8.ValidString(*label) {
			c.Fail("label %q is not valid UTF-8", *label)
		}
	}
}
