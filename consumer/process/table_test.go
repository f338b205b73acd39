package process

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// batch returns a memory batch of one host at one wall time, with one event per process.
func batch(tb testing.TB, hostname string, wall time.Duration, pids ...uint32) *schema.Batch {
	tb.Helper()
	b := schema.NewBuilder(schema.KindMemory)
	call := b.Call(schema.Calls[2].Ref())
	for _, pid := range pids {
		p := b.Process(schema.Process{PID: pid, Start: 1, Comm: "train"})
		b.AddMemory(&schema.Memory{Time: schema.KTime(wall), Thread: b.Thread(schema.Thread{Process: p, TID: pid}),
			Call: call})
	}
	var out schema.Batch
	if err := schema.NewDecoder().Decode(b.Encode(&schema.Header{Host: hostname, BootID: "b"}), &out); err != nil {
		tb.Fatal(err)
	}
	return &out
}

func pids(t *Table[int]) string {
	text := ""
	for _, e := range t.All() {
		text += fmt.Sprint(e.ID.Host, e.ID.PID, " ")
	}
	return text
}

func TestSilentProcessesAreForgotten(t *testing.T) {
	t.Parallel()
	table := NewTable(func(_ *Entry[int], silent time.Duration) bool { return silent >= time.Hour })
	gone := 0
	table.OnForget(func(*Entry[int]) { gone++ })
	table.Threads(batch(t, "a", 0, 1, 2))
	table.Threads(batch(t, "a", 50*time.Minute, 2))
	table.Threads(batch(t, "a", 61*time.Minute, 3))
	if got, want := pids(table), "a2 a3 "; got != want || len(table.All()) != 2 || gone != 1 {
		t.Errorf("got %q, %d known, %d gone; want %q, 2, 1", got, len(table.All()), gone, want)
	}
}

// A host whose clock is a day ahead does not make processes of other hosts look silent.
func TestSilenceUsesTheHostsOwnClock(t *testing.T) {
	t.Parallel()
	table := NewTable(func(_ *Entry[int], silent time.Duration) bool { return silent >= time.Hour })
	table.Threads(batch(t, "a", 0, 1))
	table.Threads(batch(t, "b", 24*time.Hour, 1))
	table.Threads(batch(t, "a", 2*time.Minute, 2))
	if got, want := pids(table), "a1 b1 a2 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A clock that was years ahead does not keep processes that ended since.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	table := NewTable(func(_ *Entry[int], silent time.Duration) bool { return silent >= time.Hour })
	table.Threads(batch(t, "a", 20*365*24*time.Hour, 1))
	table.Threads(batch(t, "a", 0, 2))
	table.Threads(batch(t, "a", 30*time.Minute))
	table.Threads(batch(t, "a", 61*time.Minute, 3))
	if got, want := pids(table), "a1 a3 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A process that the current batch names is not forgotten, however full the table is.
func TestProcessesOfCurrentBatchStay(t *testing.T) {
	t.Parallel()
	const limit, trimmed = 1600, 1500
	table := NewTable[int](nil)
	table.limit = limit
	table.Threads(batch(t, "a", 0, sequence(0, limit)...))
	var gone []uint32
	table.OnForget(func(e *Entry[int]) { gone = append(gone, e.ID.PID) })
	table.Threads(batch(t, "a", 5*time.Minute, 0, limit, limit+1))
	if len(gone) != 0 {
		t.Fatalf("%d processes of the current batch were forgotten", len(gone))
	}
	table.Threads(batch(t, "a", 5*time.Minute, limit))
	const excess = limit + 2 - trimmed
	if !slices.Equal(gone, sequence(0, excess)) || len(table.All()) != trimmed || len(table.All()) != trimmed {
		t.Errorf("%d gone, %d known", len(gone), len(table.All()))
	}
}

// A full table forgets ended processes before running ones, each in order of first sight.
func TestFullTableEvictsEndedFirst(t *testing.T) {
	t.Parallel()
	const limit, trimmed, processes = 1600, 1500, 2400
	const run = 10 // of every 13
	table := NewTable[int](nil)
	table.limit = limit
	for _, e := range table.Threads(batch(t, "a", 0, sequence(0, processes)...)) {
		e.Ended = e.ID.PID%13 >= run
	}
	var gone []uint32
	table.OnForget(func(e *Entry[int]) { gone = append(gone, e.ID.PID) })
	table.Threads(batch(t, "b", 0, 1))
	all := sequence(0, processes)
	want := slices.DeleteFunc(slices.Clone(all), func(pid uint32) bool { return pid%13 < run })
	want = append(want, slices.DeleteFunc(all, func(pid uint32) bool {
		return pid%13 >= run
	})[:processes-trimmed-len(want)]...)
	if !slices.Equal(gone, want) || len(table.All()) != trimmed+1 {
		t.Errorf("%d gone, %d of them running; want %d", len(gone),
			len(slices.DeleteFunc(gone, func(pid uint32) bool { return pid%13 >= run })), len(want))
	}
	if got := len(table.Of(snapshot.HostID{Host: "a"})); got != trimmed {
		t.Errorf("%d of the host are left, want %d", got, trimmed)
	}
}

func sequence(from, n uint32) (all []uint32) {
	for i := range n {
		all = append(all, from+i)
	}
	return all
}

// The last event of a batch decides a process's name. Fields that a later batch does not know keep their values.
func TestLastEventNamesTheProcess(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		comms []string // of one process's events; "" separates batches
		want  string
	}{
		{"one", []string{"a"}, "a"},
		{"renamed within a batch", []string{"a", "b"}, "b"},
		{"renamed and back within a batch", []string{"a", "b", "a"}, "a"},
		{"renamed between batches", []string{"a", "", "b"}, "b"},
		{"renamed in a batch and back in the next", []string{"a", "b", "", "a"}, "a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := NewTable[int](nil)
			b := schema.NewBuilder(schema.KindMemory)
			send := func() {
				var out schema.Batch
				if err := schema.NewDecoder().Decode(b.Encode(&schema.Header{Host: "a", BootID: "b"}),
					&out); err != nil {
					t.Fatal(err)
				}
				table.Threads(&out)
				b.Reset()
			}
			exe, user := "/bin/first", "somebody"
			for i, comm := range test.comms {
				if comm == "" {
					send()
					exe, user = "", ""
					continue
				}
				p := b.Process(schema.Process{PID: 1, Start: 1, Comm: comm, Exe: exe, User: user, Pod: user,
					Late: i == 0})
				thread := b.Thread(schema.Thread{Process: p, TID: 1})
				b.AddMemory(&schema.Memory{Time: schema.KTime(i), Thread: thread, Call: b.Call(schema.Calls[2].Ref())})
			}
			send()
			e := table.All()[0]
			if e.Comm != test.want || e.Exe != "/bin/first" || e.User != "somebody" || e.Pod != "somebody" ||
				len(table.All()) != 1 {
				t.Errorf("got %+v, want comm %s", e, test.want)
			}
		})
	}
}

// A recorded call counts as recorded only, and its symbol has one counter.
func TestRecordedCallsAreSeparate(t *testing.T) {
	t.Parallel()
	var c Calls
	record, alloc := schema.CallRef{Symbol: "cuMemAllocAsync", Op: schema.OpRecord},
		schema.CallRef{Symbol: "cuMemAllocAsync", Op: schema.OpAlloc}
	c.Find(&record).Recorded += 3
	c.Find(&alloc).Count(0)
	c.Find(&record).Recorded++
	if len(c) != 1 || c[0].Recorded != 4 || c[0].OK != 1 || c[0].Op != schema.OpAlloc {
		t.Errorf("got %+v", c)
	}
}

func TestCallsKeepTheirLimit(t *testing.T) {
	t.Parallel()
	var c Calls
	for i := range 1000 {
		c.Find(&schema.CallRef{Symbol: fmt.Sprintf("cu%d", i)}).Count(uint32(i % 2))
	}
	for result := range uint32(1000) {
		c[0].Count(1 + result)
	}
	if c[0].Failed != 1000 || len(c[0].Errors) != maxResults {
		t.Errorf("%d failures with %d results", c[0].Failed, len(c[0].Errors))
	}
	last := c[len(c)-1]
	if len(c) != maxCalls || last.Symbol != "other" || last.OK+last.Failed != 1000-maxCalls+1 {
		t.Errorf("%d symbols, the last %+v", len(c), last)
	}
}
