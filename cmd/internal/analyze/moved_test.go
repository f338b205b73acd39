package analyze

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// movingHost returns the messages of a host whose batches are numbered: memory, launches and copies, in turns. The
// process allocates 100 bytes in each second and frees those of the second before, but for the first.
func movingHost(t *testing.T, name string) (messages []recording.Message) {
	t.Helper()
	memory := consumertest.Memory(t, name)
	p := memory.Process(7, second/2, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	builders := map[schema.Kind]*schema.Builder{
		schema.KindLaunch: schema.NewBuilder(schema.KindLaunch), schema.KindCopy: schema.NewBuilder(schema.KindCopy),
	}
	for i := range uint64(4) {
		at := schema.KTime(1+i) * second
		if p.Alloc(7, 0x100*(1+i), 100, at, 0); i > 1 {
			p.Free(7, 0x100*i, at+1, 0)
		}
		data := [][]byte{bytes.Clone(memory.Message())}
		header := memory.Header
		header.Seq = 1 + i
		for _, kind := range []schema.Kind{schema.KindLaunch, schema.KindCopy} {
			b := builders[kind]
			thread := b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: 7, Start: second / 2,
				Comm: "train"}), TID: 7})
			if kind == schema.KindLaunch {
				b.AddLaunch(&schema.Launch{Time: at, Thread: thread, CUDAStream: b.CUDAStream(0),
					Shape: b.Shape(schema.LaunchShape{Func: b.Func(schema.Func{Name: "step"}),
						Call: b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})})})
			} else {
				b.AddCopy(&schema.Copy{Time: at, Duration: 10, Thread: thread, Bytes: 1000, CUDAStream: b.CUDAStream(0),
					Call: b.Call(schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy,
						Direction: schema.HtoD})})
			}
			data = append(data, bytes.Clone(b.Encode(&header)))
		}
		for n, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy} {
			messages = append(messages, recording.Message{Sequence: uint64(len(messages) + 1), Data: data[n],
				Stored:  wallStart.Add(time.Duration(i) * time.Second),
				Subject: schema.Subject(0, "test", name, kind)})
		}
	}
	return messages
}

// inShard returns messages as those of a shard, with sequences from 1.
func inShard(number int, messages []recording.Message) (list []recording.Message) {
	for i, m := range messages {
		m.Shard, m.Sequence = number, uint64(1+i)
		m.Subject = strings.Replace(m.Subject, "ev.0.", fmt.Sprintf("ev.%d.", number), 1)
		list = append(list, m)
	}
	return list
}

// stateOf returns the sections of messages as those before the first message of a shard.
func stateOf(t *testing.T, number int, messages []recording.Message) (list []recording.Section) {
	t.Helper()
	p := consumer.NewReplay(0, leak.New(leak.Config{}), true, slog.New(slog.DiscardHandler))
	for i := range messages {
		p.Apply(&messages[i])
	}
	check(t, p.Sections(func(s recording.Section) error {
		s.Shard, s.Sequence, s.Data = number, 0, bytes.Clone(s.Data)
		list = append(list, s)
		return nil
	}))
	return list
}

func write(t *testing.T, streams []recording.Stream, state []recording.Section, messages []recording.Message) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	for _, s := range state {
		check(t, w.AddSection(s))
	}
	for i := range streams {
		streams[i].Name, streams[i].Created = schema.StreamName(streams[i].Shard), wallStart
	}
	check(t, w.AddStreams(recording.Selection{}, streams))
	for i := range messages {
		check(t, w.Append(&messages[i]))
	}
	check(t, w.Close())
	return path
}

// TestChangeOfShards: hosts have their first messages in shards of one generation and the others in those of the next
// one. The file has the later ones first. The answers are those of a recording of one shard.
func TestChangeOfShards(t *testing.T) {
	t.Parallel()
	one, two := movingHost(t, "gpu-1"), movingHost(t, "gpu-2")
	const complete, none = recording.KnowledgeComplete, recording.KnowledgeNone
	all := slices.Concat(inShard(0, one), inShard(1, two))
	want := write(t, []recording.Stream{{Shard: 0, State: complete}, {Shard: 1, State: complete}}, nil, all)
	// gpu-1 goes from 0 to 3, gpu-2 from 1 to 2.
	early := slices.Concat(inShard(0, one[:6]), inShard(1, two[:6]))
	late := slices.Concat(inShard(2, two[6:]), inShard(3, one[6:]))
	inherited := append(stateOf(t, 2, two[:6]), stateOf(t, 3, one[:6])...)
	streams := func(later recording.Knowledge) (list []recording.Stream) {
		for shard := range 4 {
			list = append(list, recording.Stream{Shard: shard, State: complete})
			if shard >= 2 {
				list[shard].State = later
			}
		}
		return list
	}
	for name, path := range map[string]string{
		"a range of both generations":       write(t, streams(complete), inherited, append(late, early...)),
		"the shards were added":             write(t, streams(none), nil, append(late, early...)),
		"in the order of their generations": write(t, streams(complete), nil, append(early, late...)),
	} {
		for _, args := range []string{"watermark", "leakage", "usage", "usage --by class", "launches", "bandwidth",
			"leakage --since " + at(1), "watermark --until " + at(3), "bandwidth --since " + at(1)} {
			words := append(strings.Fields(args), "-o", "json")
			wanted, err := typed(t, slices.Insert(slices.Clone(words), 1, want)...)
			check(t, err)
			got, err := typed(t, slices.Insert(slices.Clone(words), 1, path)...)
			if err != nil || got != wanted || !strings.Contains(got, `"complete":true`) {
				t.Errorf("%s: %s: %v\ngot  %swant %s", name, args, err, got, wanted)
			}
		}
	}
	// A range may begin while the producers move: then its state has the hosts in both shards.
	between := streams(complete)
	for i := range between {
		between[i].After = 1
	}
	path := write(t, between, nil, slices.Concat(late[1:], early[1:]))
	const text = "the number of shards changed within the range, and 2 processes moved to another shard"
	for args, want := range map[string]int{"--pid 7": 1, "--pid 8": 0} {
		_, err := typed(t, append([]string{"leakage", path}, strings.Fields(args)...)...)
		if app.ExitCode(err) != 4 || strings.Count(err.Error(), text) != want {
			t.Errorf("%s: %v", args, err)
		}
	}
	// A range that begins after the change has none of the messages before it, but their state.
	path = write(t, streams(complete)[2:], inherited, late)
	for _, args := range []string{"leakage", "watermark"} {
		wanted, err := typed(t, args, want, "-o", "json")
		check(t, err)
		got, err := typed(t, args, path, "-o", "json")
		if err != nil || got != wanted {
			t.Errorf("after the change: %s: %v\ngot  %swant %s", args, err, got, wanted)
		}
	}
}

// TestAbsentBatchesOfLaunchesAndCopies: an answer without some of the batches is incomplete.
func TestAbsentBatchesOfLaunchesAndCopies(t *testing.T) {
	t.Parallel()
	streams := []recording.Stream{{State: recording.KnowledgeComplete}}
	messages := movingHost(t, "gpu-1")
	whole := write(t, streams, nil, messages)
	path := write(t, streams, nil, slices.Concat(messages[:4], messages[5:])) // without the second batch of launches
	for args, want := range map[string]string{
		"launches":                  "the data are incomplete: 1 batch is missing",
		"bandwidth":                 "",
		"launches --host gpu-2":     "the data are incomplete: no process is selected by --host gpu-2",
		"launches --until " + at(1): "",
		"diff " + whole:             "the data are incomplete: b: 1 batch is missing",
	} {
		words := strings.Fields(args)
		if words[0] != "diff" {
			words = append(words, "-o", "json")
		}
		_, err := typed(t, append(words, path)...)
		switch {
		case want == "" && err == nil:
		case err == nil || err.Error() != want || app.ExitCode(err) != 4:
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
