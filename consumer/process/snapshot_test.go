package process

import (
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
)

func saved(t *Table[int], hosts ...string) *snapshot.Writer {
	w := &snapshot.Writer{}
	t.SaveShard(w)
	for _, h := range hosts {
		t.SaveHost(w, snapshot.HostID{Host: h}, func(e *Entry[int]) { w.Uint(uint64(e.State)) })
	}
	return w
}

// restored returns a table with the hosts that w holds.
func restored(tb testing.TB, w *snapshot.Writer, forget func(*Entry[int], time.Duration) bool,
	hosts ...string) *Table[int] {
	table, r := NewTable(forget), snapshot.NewReader(w.Data())
	table.RestoreShard(r)
	for _, h := range hosts {
		table.RestoreHost(r, snapshot.HostID{Host: h}, func(e *Entry[int]) { e.State = int(r.Uint()) })
	}
	if r.Err() != nil || r.Room(1) > 0 {
		tb.Fatalf("%v, %d bytes left", r.Err(), r.Room(1))
	}
	return table
}

// Restored processes of several hosts are in order of first sight, even if the newest process was forgotten before.
func TestRestoreKeepsOrder(t *testing.T) {
	t.Parallel()
	forget := func(e *Entry[int], silent time.Duration) bool { return silent > time.Hour }
	table := NewTable(forget)
	for i, b := range []struct {
		host string
		wall time.Duration
		pid  uint32
	}{{"b", 0, 5}, {"a", 0, 4}, {"b", 0, 3}, {"a", 0, 2}, {"c", 0, 9}, {"c", 0, 8}} {
		table.Threads(batch(t, b.host, b.wall, b.pid))[0].State = i
	}
	table.Threads(batch(t, "c", 2*time.Hour, 9)) // forgets process 8, the newest
	hosts := []string{"a", "b", "c"}
	w := saved(table, hosts...)
	again := restored(t, w, forget, hosts...)
	if got, want := pids(again), pids(table); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := again.All()[3].State; got != table.All()[3].State || got == 0 {
		t.Errorf("the state of the fourth is %d", got)
	}
	for _, table := range []*Table[int]{table, again} { // the original and the restored table go on alike
		table.Threads(batch(t, "b", 0, 7))
		table.Threads(batch(t, "a", 2*time.Hour, 6))
	}
	if got, want := pids(again), pids(table); got != want {
		t.Errorf("after more batches: got %s, want %s", got, want)
	}
	if string(saved(again, hosts...).Data()) != string(saved(table, hosts...).Data()) {
		t.Error("the snapshots differ")
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	t.Parallel()
	table := NewTable[int](nil)
	table.Threads(batch(t, "a", 0, 1, 2))
	data := saved(table, "a").Data()
	for n := range data {
		again, r := NewTable[int](nil), snapshot.NewReader(data[:n])
		again.RestoreShard(r)
		again.RestoreHost(r, snapshot.HostID{Host: "a"}, func(*Entry[int]) { r.Uint() })
		if r.Err() == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(data))
		}
	}
	again := restored(t, saved(table, "a"), nil, "a")
	r := snapshot.NewReader(data)
	again.RestoreShard(r)
	if again.RestoreHost(r, snapshot.HostID{Host: "a"}, func(*Entry[int]) {}); r.Err() == nil {
		t.Error("a host was restored twice")
	}
}
