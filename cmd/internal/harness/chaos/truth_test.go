package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema"
)

// recorded returns the batches of the recording.
func recorded(t *testing.T) (list []schema.Batch) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recording")
	if err := writeRecording(path); err != nil {
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

// compare returns how the folds' reports differ from the truth when they fold other batches than were published.
func compare(t *testing.T, folded, published []schema.Batch) error {
	t.Helper()
	truth := newTruth()
	for i := range published {
		truth.apply(&published[i], false)
	}
	for _, entry := range fold.All() {
		state := entry.NewUnlimited()
		for i := range folded {
			for _, kind := range entry.Kinds() {
				if folded[i].Kind != kind {
					continue
				}
				if err := state.Apply(&folded[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := truth.compareReports(entry, []consumer.Stateful{state}); err != nil {
			return err
		}
	}
	return nil
}

// TestFoldsEqualTheModel: the folds and the model agree on the recording. A batch that a fold misses, or folds twice,
// is an error.
func TestFoldsEqualTheModel(t *testing.T) {
	all := recorded(t)
	if err := compare(t, all, all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		less := append(append([]schema.Batch{}, all[:i]...), all[i+1:]...)
		if err := compare(t, less, all); err == nil || !strings.Contains(err.Error(), "pid") {
			t.Errorf("without the %s batch: %v, want an error that names a process", all[i].Kind, err)
		}
		twice := append([]schema.Batch{all[i]}, all...)
		if err := compare(t, twice, all); err == nil {
			t.Errorf("the %s batch twice: no error", all[i].Kind)
		}
	}
}

// TestRecordingHasEveryKindOfState: a takeover must carry all of it over.
func TestRecordingHasEveryKindOfState(t *testing.T) {
	truth := newTruth()
	ops := map[schema.Op]int{}
	all := recorded(t)
	for i := range all {
		b := &all[i]
		truth.apply(b, false)
		for j := range b.Events {
			if b.Kind == schema.KindMemory {
				ops[b.Calls[b.Memory(j).Call].Op]++
			}
		}
	}
	for _, op := range []schema.Op{
		schema.OpAlloc, schema.OpFree, schema.OpCreate, schema.OpRelease, schema.OpMap, schema.OpUnmap,
		schema.OpPoolCreate,
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
		t.Errorf("%d processes end with %d bytes unfreed, %d keep running", ended, unfreed, running)
	}
}

// TestWithheldBatchesAreCounted: a withheld batch is missing once a later one follows, which also reports its events
// as lost.
func TestWithheldBatchesAreCounted(t *testing.T) {
	truth := newTruth()
	add := func(kind schema.Kind, seq uint64, events int, withheld bool) {
		t.Helper()
		header := schema.Header{Kind: kind, Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: seq, Events: events}
		if err := truth.add(&schema.Batch{Header: header}, nil, withheld); err != nil {
			t.Fatal(err)
		}
	}
	add(schema.KindHost, 1, 0, false)
	add(schema.KindLaunch, 1, 5, true)
	add(schema.KindLaunch, 2, 7, false)
	add(schema.KindMemory, 1, 3, false)
	add(schema.KindLaunch, 3, 11, true) // no later batch: a reader cannot notice
	for _, row := range []struct {
		name string
		want counts
	}{
		{"launch", counts{batches: 2, missing: 1, lost: 5, events: [schema.NumKinds]uint64{schema.KindLaunch: 7}}},
		{"leak", counts{batches: 2, lost: 5, events: [schema.NumKinds]uint64{schema.KindMemory: 3}}},
		{"bandwidth", counts{batches: 1}},
	} {
		if got := truth.counts(0, 1, fold.ByName(row.name).Kinds()); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
	header := schema.Header{Kind: schema.KindMemory, Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 3}
	if err := truth.add(&schema.Batch{Header: header}, nil, false); err == nil {
		t.Error("a log with a gap is no error")
	}
}
