package fold

import (
	"reflect"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// TestMemoryKeepsItsFolds: a snapshot restores the tracker, the tensors and the hosts, and gives the same bytes again.
func TestMemoryKeepsItsFolds(t *testing.T) {
	t.Parallel()
	first := Leak.New().(*Memory)
	for _, name := range []string{"gpu-2", "gpu-1"} {
		h := consumertest.Memory(t, name)
		h.Process(7, 1, "python3").Alloc(7, 0x1000, 70<<20, 100, 5)
		beat := schema.NewBuilder(schema.KindHost)
		beat.GPU(schema.GPU{UUID: "GPU-" + name})
		header := h.Header
		header.Seq = 1
		for _, b := range []*schema.Batch{h.Batch(), consumertest.Decode(t, beat.Encode(&header))} {
			if err := first.Apply(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	sections := sectionsOf(t, first)
	second := Leak.New().(*Memory)
	for _, s := range sections {
		if err := second.Restore(s); err != nil {
			t.Fatal(err)
		}
	}
	if again := sectionsOf(t, second); len(again) != 9 || !reflect.DeepEqual(again, sections) {
		t.Errorf("%d sections are %d after a restore, or differ", len(sections), len(again))
	}
	for i, want := range []string{"GPU-gpu-1", "GPU-gpu-2"} {
		if hosts := second.Hosts.Report(); len(hosts) != 2 || hosts[i].GPUs[0].UUID != want {
			t.Errorf("hosts %+v", hosts)
		}
	}
	if r := second.Tracker.Report(); r.Totals.LiveBytes != 140<<20 {
		t.Errorf("%d bytes are live", r.Totals.LiveBytes)
	}
	second.Forget("test", "gpu-1")
	if r, hosts := second.Tracker.Report(), second.Hosts.Report(); len(r.Processes) != 1 || len(hosts) != 1 {
		t.Errorf("%d processes and %d hosts are left", len(r.Processes), len(hosts))
	}
	bad := sections[0]
	bad.Data = bad.Data[:len(bad.Data)-1]
	if err := Leak.New().Restore(bad); err == nil {
		t.Error("a damaged section is restored")
	}
}

func sectionsOf(t *testing.T, m *Memory) (list []snapshot.Section) {
	t.Helper()
	err := m.Snapshot(func(s snapshot.Section) error {
		s.Data = append([]byte(nil), s.Data...)
		list = append(list, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
