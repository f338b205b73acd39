package analyze

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// recordingOf writes a recording of these shards. Without kinds it has all kinds.
func recordingOf(t *testing.T, shards int, kinds []schema.Kind, messages ...recording.Message) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	var streams []recording.Stream
	for shard := range shards {
		streams = append(streams, recording.Stream{Name: schema.StreamName(shard), Shard: shard, Created: wallStart,
			State: recording.KnowledgeComplete})
	}
	check(t, w.AddStreams(recording.Selection{Kinds: kinds}, streams))
	for i := range messages {
		check(t, w.Append(&messages[i]))
	}
	check(t, w.Close())
	return path
}

// fleet returns two messages of each of two hosts of two shards. In each message a process frees unknown memory and
// fails once. A process of the second host lost events.
func fleet(t *testing.T) (messages []recording.Message) {
	t.Helper()
	for shard := range 2 {
		host := fmt.Sprint("gpu-", shard)
		h := consumertest.Memory(t, host)
		p := h.Process(7, second/2, "train")
		for i := range uint64(2) {
			at := schema.KTime(1+10*i) * second
			p.Alloc(7, 0x100+i, 100, at, 0).Free(7, 0x900+i, at+1, 0).Fail("cuMemAlloc_v2", 7, 2, 100, at+2)
			if i == 1 && shard == 1 {
				h.Header.Seq++ // a batch is missing
			}
			messages = append(messages, recording.Message{Shard: shard, Sequence: 1 + i,
				Stored:  wallStart.Add(time.Duration(10*i) * time.Second),
				Subject: schema.Subject(shard, "test", host, schema.KindMemory), Data: bytes.Clone(h.Message())})
		}
	}
	slices.SortStableFunc(messages, func(a, b recording.Message) int { return a.Stored.Compare(b.Stored) })
	return messages
}

// TestFindingsOfSelectedProcesses counts what processes of a fleet did within a range.
func TestFindingsOfSelectedProcesses(t *testing.T) {
	t.Parallel()
	path := recordingOf(t, 2, nil, fleet(t)...)
	later := " --since " + wallStart.Add(5*time.Second).Format(time.RFC3339)
	for args, want := range map[string][]float64{ // unmatched_frees, failed_calls, how many are missing
		"":                        {4, 4, 1},
		"--host gpu-0":            {2, 2, 0},
		"--host gpu-1":            {2, 2, 1},
		"--comm nope":             {0, 0, 1},
		"--host gpu-0" + later:    {1, 1, 0},
		"--comm train" + later:    {2, 2, 1},
		"--cluster other" + later: {0, 0, 1},
		"--pid 7 --host *-0":      {2, 2, 0},
		later:                     {2, 2, 1},
	} {
		stdout, err := typed(t, append([]string{"watermark", path, "-o", "json"}, strings.Fields(args)...)...)
		o := object(t, stdout)
		f, missing := o["findings"].(map[string]any), o["missing"].([]any)
		got := []float64{f["unmatched_frees"].(float64), f["failed_calls"].(float64), float64(len(missing))}
		if !slices.Equal(got, want) || (len(missing) > 0) != (app.ExitCode(err) == 4) {
			t.Errorf("%q: %v, want %v; status %d, missing %v", args, got, want, app.ExitCode(err), missing)
		}
	}
	if _, err := typed(t, "leakage", path, "--comm", "nope", "--fail-on", "failed_calls>0"); app.ExitCode(err) != 4 {
		t.Errorf("no process: %v", err)
	}
}

// TestSilentProcessesAreMissing: servers allocated before gputap attached. One only launches since, one calls nothing,
// and one allocates again.
func TestSilentProcessesAreMissing(t *testing.T) {
	t.Parallel()
	memory, launches := consumertest.Memory(t, "gpu-7"), schema.NewBuilder(schema.KindLaunch)
	memory.Process(7, second, "train").Alloc(7, 0x100, 100, 2*second, 0)
	memory.Older(97, 98, 99)
	p := memory.Process(99, 1, "serve")
	p.Late = true
	p.Alloc(99, 0x200, 100, 3*second, 0)
	shape := launches.Shape(schema.LaunchShape{
		Call: launches.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch}),
		Func: launches.Func(schema.Func{Name: "serve"}),
	})
	for _, pid := range []uint32{98, 99} {
		row := launches.Process(schema.Process{PID: pid, Start: 1, Comm: "serve", Late: true})
		launches.AddLaunch(&schema.Launch{Time: 3 * second,
			Thread: launches.Thread(schema.Thread{Process: row, TID: pid}), Shape: shape,
			CUDAStream: launches.CUDAStream(0)})
	}
	header := memory.Header
	header.Seq = 1
	var messages []recording.Message
	for i, data := range [][]byte{memory.Message(), launches.Encode(&header)} {
		messages = append(messages, recording.Message{Sequence: uint64(1 + i), Data: bytes.Clone(data),
			Stored:  wallStart.Add(time.Duration(10*i) * time.Second),
			Subject: schema.Subject(0, "test", "gpu-7", []schema.Kind{schema.KindMemory, schema.KindLaunch}[i])})
	}
	path := recordingOf(t, 1, nil, messages...)
	const silent = "1 process ran before gputap did and called no memory function since: their memory is unknown"
	const late = "1 process ran before gputap did: earlier allocations are unknown"
	for args, want := range map[string][]any{
		"":             {late, silent},
		"--comm serve": {late, silent},
		"--comm train": {},
		"--pid 98":     {silent},
		"--pid 99":     {late},
	} {
		stdout, err := typed(t, append([]string{"leakage", path, "-o", "json"}, strings.Fields(args)...)...)
		got := object(t, stdout)["missing"].([]any)
		if !slices.Equal(got, want) || (app.ExitCode(err) == 4) != (len(want) > 0) {
			t.Errorf("%q: status %d, missing %q, want %q", args, app.ExitCode(err), got, want)
		}
	}
}

// TestMissingNamesEachLackOnce counts processes of two shards in one sentence.
func TestMissingNamesEachLackOnce(t *testing.T) {
	t.Parallel()
	messages := fleet(t)
	messages = slices.DeleteFunc(messages, func(m recording.Message) bool { return m.Shard == 0 && m.Sequence == 1 })
	stdout, err := typed(t, "leakage", recordingOf(t, 2, nil, messages...), "-o", "json")
	want := []any{"events of 2 processes were lost"}
	if got := object(t, stdout)["missing"].([]any); app.ExitCode(err) != 4 || !slices.Equal(got, want) {
		t.Errorf("status %d, missing %q, want %q", app.ExitCode(err), got, want)
	}
}

// TestEqualProcessesHaveOneOrder records the same messages in both orders.
func TestEqualProcessesHaveOneOrder(t *testing.T) {
	t.Parallel()
	one := fleet(t)
	other := slices.Clone(one)
	slices.SortStableFunc(other, func(a, b recording.Message) int { return b.Shard - a.Shard })
	for _, command := range []string{"watermark", "leakage", "usage"} {
		a, _ := typed(t, command, recordingOf(t, 2, nil, one...), "-o", "json")
		b, _ := typed(t, command, recordingOf(t, 2, nil, other...), "-o", "json")
		if a != b || !strings.Contains(a, "gpu-1") {
			t.Errorf("%s:\n%s\n%s", command, a, b)
		}
	}
}

// TestUnrecordedKindsAreMissing reads recordings that cannot answer a question, and others in which nothing happened.
func TestUnrecordedKindsAreMissing(t *testing.T) {
	t.Parallel()
	one := fleet(t)[:1]
	memory := recordingOf(t, 1, nil, one...)
	known := recordingOf(t, 1, []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindHost}, one...)
	nothing := recordingOf(t, 1, []schema.Kind{schema.KindLaunch})
	torch := recordingOf(t, 1, []schema.Kind{schema.KindMemory, schema.KindTensor, schema.KindHost}, one...)
	head := filepath.Join(t.TempDir(), "head.gputap")
	data, err := os.ReadFile(memory)
	check(t, err)
	check(t, os.WriteFile(head, data[:recording.HeadBytes], 0o600))
	noBlock := withoutStreams(t, data)
	const empty = "data are incomplete: the recording is empty: no message matched its selection (kinds launch)"
	for args, want := range map[string]string{
		"watermark " + memory: "",
		"launches " + memory:  "kind launch",
		"bandwidth " + memory: "kind copy",
		"launches " + known:   "",
		"bandwidth " + known:  "kind copy",

		"usage --by torch " + memory: "use the feature torch",
		"usage --by torch " + torch:  "",

		"leakage " + nothing:          empty,
		"usage --by torch " + nothing: empty,
		"leakage " + head:             "the recording is empty",
		"launches " + head:            "the recording is empty",
		"leakage " + noBlock:          "data are incomplete: the recording has no block of streams",
	} {
		_, err := typed(t, append(strings.Fields(args), "-o", "json")...)
		if got := app.ExitCode(err); want == "" && got != 0 || want != "" && (got != 4 ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: status %d, %v; want %q", args, got, err, want)
		}
	}
}

// withoutStreams writes a recording without its first block, that of the streams.
func withoutStreams(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "messages.gputap")
	const mark = "\xf5GTB"
	second := bytes.LastIndex(data, []byte(mark))
	if bytes.Count(data, []byte(mark)) != 2 {
		t.Fatalf("%d blocks, want 2", bytes.Count(data, []byte(mark)))
	}
	check(t, os.WriteFile(path, slices.Concat(data[:recording.HeadBytes], data[second:]), 0o600))
	return path
}
