package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/schema"
)

// pack makes a recording from golden messages, which have every type of event.
func pack(t testing.TB, kinds ...string) (recording []byte) {
	t.Helper()
	for _, kind := range kinds {
		data, err := os.ReadFile("../../../schema/testdata/" + kind + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		recording = append(binary.LittleEndian.AppendUint32(recording, uint32(len(data))), data...)
	}
	return recording
}

// contents counts events by the fields that a replay must not change.
func contents(b *schema.Batch, all map[string]int) {
	for i := range b.Events {
		switch b.Kind {
		case schema.KindMemory:
			e := b.Memory(i)
			all[fmt.Sprint(
				b.Calls[e.Call], e.Bytes, e.Result, e.Ptr, e.Aux, e.Pool, handle(b, e.Context), card(b, e.GPU),
				b.Threads[e.Thread].Comm,
			)]++
		case schema.KindLaunch:
			e := b.Launch(i)
			s := b.Shapes[e.Shape]
			all[fmt.Sprint(
				b.Calls[s.Call], b.Funcs[s.Func], s.Grid, s.Block, s.SharedBytes, b.CUDAStreams[e.CUDAStream],
				card(b, e.GPU), graph(b, s.Func),
			)]++
		case schema.KindCopy:
			e := b.Copy(i)
			all[fmt.Sprint(
				b.Calls[e.Call], e.Bytes, e.Result, e.Dst, e.Src, b.CUDAStreams[e.CUDAStream], card(b, e.GPU),
			)]++
		case schema.KindSync:
			e := b.Sync(i)
			all[fmt.Sprint(
				b.Calls[e.Call], e.Result, e.CUDAEvent, e.Until, e.Elapsed, b.CUDAStreams[e.CUDAStream], card(b, e.GPU),
			)]++
		}
	}
}

func handle(b *schema.Batch, context uint32) any {
	if context == 0 {
		return "none"
	}
	return fmt.Sprint(b.Contexts[context-1].Handle, card(b, b.Contexts[context-1].GPU))
}

func card(b *schema.Batch, gpu uint32) any {
	if gpu == 0 {
		return "none"
	}
	g := b.GPUs[gpu-1]
	return fmt.Sprint(g.Ordinal, g.Inferred, g.UUID != "")
}

func graph(b *schema.Batch, launched uint32) (all []string) {
	for _, g := range b.Graphs {
		for _, n := range g.Nodes {
			if g.Func == launched {
				all = append(all, fmt.Sprint(b.Funcs[n.Func].Name, n.Count, g.Partial))
			}
		}
	}
	return all
}

// TestReplayKeepsEveryEvent compares host 0, whose addresses are those of the recording, with the recording. The replay
// adds only the exits of live processes.
func TestReplayKeepsEveryEvent(t *testing.T) {
	t.Parallel()
	from, err := readRecording(bytes.NewReader(pack(t, "host", "memory", "launch", "copy", "sync")))
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]int{}, map[string]int{}
	histogram, again := launch.New(launch.Config{}), launch.New(launch.Config{})
	for _, b := range from {
		contents(b, want)
		if b.Kind == schema.KindLaunch {
			if err := histogram.Apply(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	l, err := newLife(from, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{life: l, Options: Options{Cluster: "sim", Start: past, Hosts: 1}}
	decoder, exits, cards := schema.NewDecoder(), 0, 0
	var b schema.Batch
	play(f.host(0), time.Duration(l.period)-1, func(m batch) {
		if err := decoder.Decode(m.data, &b); err != nil {
			t.Fatal(err)
		}
		contents(&b, got)
		switch b.Kind {
		case schema.KindHost:
			cards = len(b.GPUs)
			if len(b.Libraries) == 0 || b.Producer != "simulated" {
				t.Errorf("a heartbeat says %+v", b.Libraries)
			}
		case schema.KindLaunch:
			if err := again.Apply(&b); err != nil {
				t.Fatal(err)
			}
		}
	})
	for what, n := range got {
		if strings.Contains(what, schema.Calls[schema.CallExit].Symbol) {
			exits += n
			delete(got, what)
		}
	}
	for what := range want {
		if strings.Contains(what, schema.Calls[schema.CallExit].Symbol) {
			delete(want, what)
		}
	}
	if !maps.Equal(want, got) {
		t.Errorf("events\n%s, want\n%s", lines(got), lines(want))
	}
	processes := map[string]bool{}
	for _, b := range from {
		for _, th := range b.Threads {
			p := b.Processes[th.Process]
			processes[fmt.Sprint(p.PID, p.Start)] = true
		}
	}
	if exits != len(processes) || exits == 0 || cards == 0 || len(want) < 20 {
		t.Errorf("%d exits of %d processes, %d cards, %d sorts of events", exits, len(processes), cards, len(want))
	}
	w, g := histogram.Report(), again.Report()
	if len(w) != len(g) || len(w) == 0 {
		t.Fatalf("%d processes launch, want %d", len(g), len(w))
	}
	for i := range w {
		if w[i].GraphLaunches != g[i].GraphLaunches || len(w[i].Funcs) != len(g[i].Funcs) ||
			w[i].Funcs[0].Launches != g[i].Funcs[0].Launches {
			t.Errorf("launched %+v, want %+v", g[i], w[i])
		}
	}
}

func lines(of map[string]int) string {
	return strings.Join(slices.Sorted(maps.Keys(of)), "\n")
}

func TestInvalidRecordingsAreRejected(t *testing.T) {
	t.Parallel()
	memory := pack(t, "memory")
	other := bytes.Clone(pack(t, "launch"))
	at := bytes.Index(other, []byte("\xa4boot")) + 6
	other[at]++
	for name, data := range map[string][]byte{
		"nothing": nil, "text": []byte("what is this, then?"), "cut off": memory[:len(memory)-1], "length": memory[:2],
		"no event":  pack(t, "host"),
		"two boots": append(bytes.Clone(memory), other...), "gzip": {0x1f, 0x8b, 0, 0},
	} {
		if _, err := readRecording(bytes.NewReader(data)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	twice, err := readRecording(bytes.NewReader(append(bytes.Clone(memory), memory...)))
	if err != nil || len(twice) != 1 {
		t.Errorf("a batch that was stored twice counts %d times, %v", len(twice), err)
	}
}

// TestPaceNeverGoesBackwards also checks the start, the end and the share of a window.
func TestPaceNeverGoesBackwards(t *testing.T) {
	t.Parallel()
	times := []schema.KTime{1000, 1000, 1000, 5, 6, 7, 1_000_000, 1_000_001, 7, 1_000_002}
	p := newPace(times, 100, 1100, 2)
	if p.of(5) != 100 || p.of(1_000_003) != 1100 || p.of(1_000_013) != 1110 || p.of(0) != 95 {
		t.Errorf("from %d to %d: %+v", p.of(5), p.of(1_000_003), p)
	}
	last := schema.KTime(0)
	for at := schema.KTime(0); at < 1_000_100; at++ {
		now := p.of(at)
		if now < last {
			t.Fatalf("%d is %d, before %d", at, now, last)
		}
		last = now
	}
}
