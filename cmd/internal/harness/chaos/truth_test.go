package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
)

// recorded is the recording, batch by batch.
func recorded(t *testing.T) (list []schema.Batch) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile")
	if err := writeProfile(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		var b schema.Batch
		if err := schema.NewDecoder().Decode(data[4:4+n], &b); err != nil {
			t.Fatal(err)
		}
		list, data = append(list, b), data[4+n:]
	}
	return list
}

// compared is what the folds show otherwise than the truth says, after batches of each.
func compared(t *testing.T, folded, published []schema.Batch) error {
	t.Helper()
	truth := newTruth()
	for i := range published {
		truth.tell(&published[i], false)
	}
	for _, name := range consumers {
		fold := map[string]consumer.Stateful{
			"leak": leak.New(leak.Config{}), "launch": launch.New(launch.Config{}), "bandwidth": bandwidth.New(bandwidth.Config{}), "anomaly": anomaly.New(anomaly.Config{}),
		}[name]
		v := newView(name, truth)
		for i := range folded {
			for _, kind := range kindsOf[name] {
				if folded[i].Kind != kind {
					continue
				}
				if err := fold.Apply(&folded[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		v.see(fold)
		if err := v.err(); err != nil {
			return err
		}
	}
	return nil
}

// TestModelKnowsTheRecording: what the model makes of the recording is what the folds make of it, and none of them may see a
// batch less, or one twice.
func TestModelKnowsTheRecording(t *testing.T) {
	all := recorded(t)
	if err := compared(t, all, all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		less := append(append([]schema.Batch{}, all[:i]...), all[i+1:]...)
		if err := compared(t, less, all); err == nil || !strings.Contains(err.Error(), "pid") {
			t.Errorf("without the %s batch: %v, want an error that names a process", all[i].Kind, err)
		}
		twice := append([]schema.Batch{all[i]}, all...)
		if err := compared(t, twice, all); err == nil {
			t.Errorf("the %s batch twice: no error", all[i].Kind)
		}
	}
}

// TestRecording: it has what a shard must carry over when it changes hands.
func TestRecording(t *testing.T) {
	truth := newTruth()
	ops := map[schema.Op]int{}
	all := recorded(t)
	for i := range all {
		b := &all[i]
		truth.tell(b, false)
		for j := range b.Events {
			if b.Kind == schema.KindMemory {
				ops[b.Calls[b.Memory(j).Call].Op]++
			}
		}
	}
	for _, op := range []schema.Op{
		schema.OpAlloc, schema.OpFree, schema.OpCreate, schema.OpRelease, schema.OpMap, schema.OpUnmap, schema.OpPoolCreate,
		schema.OpContextCreate, schema.OpContextRetain, schema.OpContextDestroy, schema.OpExit,
	} {
		if ops[op] == 0 {
			t.Errorf("no %s", op)
		}
	}
	ended, running, unfreed := 0, 0, uint64(0)
	for _, p := range truth.processes {
		unfreed += p.gpu.unfreed + p.hostMem.unfreed
		if p.exited {
			ended++
		} else {
			running++
		}
	}
	// train: 48 MiB, 512 B, 7 MiB of a pool and 16 MiB of the host; serve: 4 MiB of a pool, and 6 MiB
	if ended != 5 || running != 1 || unfreed != 81*mebibyte+512 {
		t.Errorf("%d processes end with %d bytes unfreed, %d do not", ended, unfreed, running)
	}
}

// TestCountsOfWithheldBatches: missing is what a batch came behind, lost is what such a batch said.
func TestCountsOfWithheldBatches(t *testing.T) {
	truth := newTruth()
	add := func(kind schema.Kind, seq uint64, events int, withheld bool) {
		t.Helper()
		if err := truth.add(&schema.Batch{Header: schema.Header{Kind: kind, Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: seq, Events: events}}, 0, withheld); err != nil {
			t.Fatal(err)
		}
	}
	add(schema.KindHost, 1, 0, false)
	add(schema.KindLaunch, 1, 5, true)
	add(schema.KindLaunch, 2, 7, false)
	add(schema.KindMemory, 1, 3, false)
	add(schema.KindLaunch, 3, 11, true) // nobody can know
	for _, row := range []struct {
		name string
		want counts
	}{
		{"launch", counts{batches: 2, missing: 1, lost: 5, events: [schema.NumKinds]uint64{schema.KindLaunch: 7}}},
		{"leak", counts{batches: 2, lost: 5, events: [schema.NumKinds]uint64{schema.KindMemory: 3}}},
		{"bandwidth", counts{batches: 1}},
	} {
		if got := truth.counts(0, 1, kindsOf[row.name]); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
	if err := truth.add(&schema.Batch{Header: schema.Header{Kind: schema.KindMemory, Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 3}}, 0, false); err == nil {
		t.Error("a log with a hole is no error")
	}
}

func TestWhoseStateDiffers(t *testing.T) {
	want := []byte("\x02head\x04sim0\x08sim-0001abc\x04sim0\x08sim-0002def")
	got := []byte("\x02head\x04sim0\x08sim-0001abc\x04sim0\x08sim-0002dXf")
	if s := whose(want, got); s != "byte 37 of 39 and 39, in or behind what it holds of sim-0002" {
		t.Error(s)
	}
	if s := whose(want, want[:3]); s != "byte 3 of 3 and 39" {
		t.Error(s)
	}
}
