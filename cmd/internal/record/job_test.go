package record

import (
	"context"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema/recording"
)

// TestJob records the hosts of a job: one on which it runs from the beginning, and one from where it starts. A restart
// of the recorder, and another file, change nothing.
func TestJob(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.jobs = map[string]string{"gpu-1": "train/1", "gpu-2": "other"}
	f.publish(80)
	o := f.options(tempPath(t))
	o.Selection.Job = "train*"
	began := len(f.published)
	r := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-r.Ready()
	f.publish(50)
	started := len(f.published)
	f.jobs["gpu-3"] = "train/2"
	f.publish(50)
	cancel()
	check(t, <-ended)
	f.publish(20)
	f.recordAll(o)
	first := started + slices.IndexFunc(f.published[started:], func(m published) bool {
		return m.host == "gpu-3" && m.Subject[len(m.Subject)-6:] == "memory"
	})
	want := f.messages(func(i int, m *published) bool {
		return i >= began && m.host == "gpu-1" || i >= first && m.host == "gpu-3"
	})
	got := readFile(t, o.Path)
	expect(t, got.messages, want)
	live := f.live(began)
	expectLive(t, "at the beginning", got.live, map[string]int64{"gpu-1": live["gpu-1"]})
	for _, s := range got.sections {
		if s.Host != "" && s.Host != "gpu-1" {
			t.Errorf("there is a state of host %s", s.Host)
		}
	}
	in, err := recording.Open(o.Path)
	check(t, err)
	defer in.Close()
	if s, _, err := in.Streams(); err != nil || s.Job != "train*" {
		t.Errorf("selection %+v, %v", s, err)
	}
	o.Selection.Job = "other"
	if err := New(o).Run(t.Context()); err == nil {
		t.Error("another job continues the file")
	}
	if o.Selection.Job = "["; New(o).Run(t.Context()) == nil {
		t.Error("a bad pattern is accepted")
	}
}

// TestJobRotates checks the state at the beginning of each file.
func TestJobRotates(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	f.jobs = map[string]string{"gpu-1": "a", "gpu-4": "b"}
	f.publish(150)
	o := f.options(tempPath(t))
	o.Since, o.MaxFileBytes, o.Selection.Job = f.published[60].Stored, 1, "a"
	f.recordAll(o)
	o.MaxFileBytes = 1 << 30
	f.publish(30)
	f.recordAll(o)
	files, err := lastNumber(o.Path)
	check(t, err)
	live := map[string]int64{}
	for i := range f.published[:60] {
		if p := &f.published[i]; p.host == "gpu-1" {
			live[p.host] += p.delta
		}
	}
	var all []recording.Message
	for number := 1; number <= files; number++ {
		got := readFile(t, numbered(o.Path, number))
		expectLive(t, "at the beginning of a file", got.live, live)
		if live = got.end; slices.Contains(got.evidence, "gap") {
			t.Errorf("file %d: evidence %v", number, got.evidence)
		}
		if len(got.streams) != 1 || got.streams[0].State != recording.KnowledgePartial {
			t.Errorf("file %d: %+v", number, got.streams)
		}
		all = append(all, got.messages...)
	}
	expect(t, all, f.messages(func(i int, m *published) bool { return i >= 60 && m.host == "gpu-1" }))
	if end := f.live(180)["gpu-1"]; live["gpu-1"] != end {
		t.Errorf("at the end %v, want %d", live, end)
	}
}
