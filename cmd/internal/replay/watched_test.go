package replay

import (
	"path/filepath"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// recordedLaunch writes a recording of these kinds; none: all. It has one launch and no wait.
func recordedLaunch(t *testing.T, kinds ...schema.Kind) (path string) {
	t.Helper()
	h := consumertest.Memory(t, "h")
	b := schema.NewBuilder(schema.KindLaunch)
	thread := b.Thread(schema.Thread{Process: b.Process(h.Process(7, 1, "p").Process), TID: 7, Comm: "p"})
	call := b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})
	b.AddLaunch(&schema.Launch{Time: 1000, Thread: thread, CUDAStream: b.CUDAStream(0),
		Shape: b.Shape(schema.LaunchShape{Call: call, Func: b.Func(schema.Func{Name: "k"})})})
	h.Header.Seq = 1
	path = filepath.Join(t.TempDir(), "launch.gtr")
	w, _, err := recording.Append(path)
	check(t, err)
	check(t, w.AddStreams(recording.Selection{Kinds: kinds}, []recording.Stream{{Name: schema.StreamName(0),
		Created: start, State: recording.KnowledgeComplete}}))
	check(t, w.Append(&recording.Message{Sequence: 1, Stored: start, Data: b.Encode(&h.Header),
		Subject: schema.Subject(0, h.Header.Cluster, h.Header.Host, schema.KindLaunch)}))
	check(t, w.Close())
	return path
}

// TestFeaturesOfARecording: a program that never waits was watched with sync if the recording selects sync. So its
// report has no gaps between waits and launches; null means that they are unknown.
func TestFeaturesOfARecording(t *testing.T) {
	t.Parallel()
	run := []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindSync, schema.KindHost}
	for _, row := range []struct {
		name             string
		recorded, chosen []schema.Kind
		known            bool
	}{
		{"gputap run with sync", run, nil, true},
		{"gputap run without sync", run[:2], nil, false},
		{"a fleet", nil, nil, false},
		{"gputap run with sync, replayed without", run, run[:2], false},
	} {
		l := replayed(t, recordedLaunch(t, row.recorded...), Pace{}, recording.Selection{Kinds: row.chosen})
		all := l.Snapshot().Processes
		if len(all) != 1 || all[0].Launches["k"] != 1 || (all[0].Gaps != nil) != row.known {
			t.Errorf("%s: %+v", row.name, all)
		}
	}
}
