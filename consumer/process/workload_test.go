package process

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

// TestWorkloadHasTheLabelsOfTheTable gives each field of a process the name of its label.
func TestWorkloadHasTheLabelsOfTheTable(t *testing.T) {
	t.Parallel()
	b := &schema.Batch{Header: schema.Header{Cluster: "cluster", Host: "hostname"},
		GPUs: []schema.GPU{{Ordinal: 7, UUID: "UUID"}}}
	p := schema.Process{Pod: "pod", Container: "container", Unit: "unit", User: "user", Job: "job", Comm: "comm",
		Exe: "exe", Cgroup: "cgroup", UID: 1}
	i := NewInfo(b, &p)
	gpu, uuid := slices.Index(metric.Workload, "gpu"), slices.Index(metric.Workload, "UUID")
	want := slices.Clone(metric.Workload)
	want[gpu] = "7"
	if got := NewWorkload(b, &i, 1).Labels(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want[gpu], want[uuid] = "", ""
	if got := WorkloadOf(&i).Labels("pid"); !slices.Equal(got, append(want, "pid")) {
		t.Errorf("without a GPU: got %q, want %q and pid", got, want)
	}
}

// TestEveryLabelTellsWorkloadsApart changes one field at a time.
func TestEveryLabelTellsWorkloadsApart(t *testing.T) {
	t.Parallel()
	var same Workload
	fields := 0
	for _, path := range reflect.VisibleFields(reflect.TypeOf(same)) {
		if path.Anonymous {
			continue
		}
		fields++
		other := same
		reflect.ValueOf(&other).Elem().FieldByIndex(path.Index).SetString("x")
		if same.Compare(other) >= 0 || other.Compare(same) <= 0 {
			t.Errorf("%s does not order workloads", path.Name)
		}
	}
	if fields != len(metric.Workload) {
		t.Errorf("%d fields, %d labels", fields, len(metric.Workload))
	}
	id := snapshot.HostID{Cluster: "c", Host: "h\xff"}
	if page := (Workload{HostID: id}).Page(); page.Cluster != "c" || page.Host != "h\uFFFD" {
		t.Errorf("the page shows %q", page.HostID)
	}
}
