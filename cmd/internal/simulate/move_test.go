package simulate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gputap/gputap/schema"
)

// samples are golden messages of every kind, and a recorded run.
func samples(t *testing.T) map[string]*schema.Batch {
	t.Helper()
	recorded, err := openRecording("../../../schema/testdata/pytorch.batches.gz")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*schema.Batch{}
	for i, b := range recorded {
		all[fmt.Sprint("recorded ", i)] = b
	}
	paths, err := filepath.Glob("../../../schema/testdata/*.golden")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d goldens, %v", len(paths), err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if all[path], err = decode(data); err != nil {
			t.Fatal(err)
		}
		if all[path].Kind == schema.KindNone {
			delete(all, path)
		}
	}
	return all
}

// moved returns a batch as the move makes it.
func moved(t *testing.T, b *schema.Batch, m *move) *schema.Batch {
	t.Helper()
	builder := schema.NewBuilder(b.Kind)
	m.apply(b, builder)
	got, err := decode(bytes.Clone(builder.Encode(&b.Header)))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestMoveShiftsAndReturns moves every batch and checks that the opposite move restores it: nothing but the shifted
// numbers changes. Times, ids and handles must differ in between.
func TestMoveShiftsAndReturns(t *testing.T) {
	t.Parallel()
	m := move{Time: 1 << 40, PID: 70_000, Handle: 5 << 47, GPU: 0x1234_5678_9abc}
	back := move{Time: -m.Time, PID: -m.PID, Handle: -m.Handle, GPU: -m.GPU}
	compared := 0
	for name, b := range samples(t) {
		want := moved(t, b, &move{})
		other := moved(t, b, &m)
		equalBatches(t, name, want, moved(t, other, &back))
		for i := range other.Processes {
			w, g := want.Processes[i], other.Processes[i]
			if g.PID != w.PID+m.PID || g.Start != w.Start+m.Time {
				t.Errorf("%s: process %+v moved to %+v", name, w, g)
			}
		}
		for i := range other.Events {
			if b.Kind == schema.KindMemory && b.Memory(i).Ptr >= leastAddress &&
				other.Memory(i).Ptr != b.Memory(i).Ptr+m.Handle {
				t.Fatalf("%s: event %d is %+v, was %+v", name, i, other.Memory(i), b.Memory(i))
			}
		}
		compared += want.Events
	}
	if compared < 30_000 {
		t.Errorf("%d events were compared", compared)
	}
}

// equalBatches compares headers, dictionaries and events. Widths of columns may differ.
func equalBatches(t *testing.T, name string, want, got *schema.Batch) {
	t.Helper()
	for _, pair := range [][2]any{
		{want.Processes, got.Processes}, {want.Threads, got.Threads}, {want.GPUs, got.GPUs}, {want.Calls, got.Calls},
		{want.Funcs, got.Funcs}, {want.Graphs, got.Graphs}, {want.Contexts, got.Contexts}, {want.Shapes, got.Shapes},
		{want.CUDAStreams, got.CUDAStreams}, {want.Libraries, got.Libraries}, {want.Linux, got.Linux},
		{want.Producer, got.Producer}, {want.Stacks, got.Stacks},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Fatalf("%s:\n%+v, want\n%+v", name, pair[1], pair[0])
		}
	}
	for i := range want.Events {
		if w, g := eventOf(want, i), eventOf(got, i); w != g {
			t.Fatalf("%s: event %d is %+v, want %+v", name, i, g, w)
		}
	}
}

func eventOf(b *schema.Batch, i int) any {
	switch b.Kind {
	case schema.KindMemory:
		return b.Memory(i)
	case schema.KindLaunch:
		return b.Launch(i)
	case schema.KindCopy:
		return b.Copy(i)
	}
	return b.Sync(i)
}
