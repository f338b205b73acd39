package process

import (
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
)

// pass passes over a table and some of its hosts.
func pass(t *Table[int], c *snapshot.Codec, hosts ...string) {
	t.CodeShard(c)
	for _, h := range hosts {
		t.CodeHost(c, snapshot.HostID{Host: h}, func(e *Entry[int]) { snapshot.Int(c, &e.State) })
	}
}

func saved(t *Table[int], hosts ...string) []byte {
	w := &snapshot.Writer{}
	pass(t, &snapshot.Codec{Writer: w}, hosts...)
	return w.Data()
}

// restored returns a table with the hosts that data holds.
func restored(tb testing.TB, data []byte, forget func(*Entry[int], time.Duration) bool, hosts ...string) *Table[int] {
	table, r := NewTable(forget), snapshot.NewReader(data)
	pass(table, &snapshot.Codec{Reader: r}, hosts...)
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
	again := restored(t, saved(table, hosts...), forget, hosts...)
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
	if string(saved(again, hosts...)) != string(saved(table, hosts...)) {
		t.Error("the snapshots differ")
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	t.Parallel()
	table := NewTable[int](nil)
	table.Threads(batch(t, "a", 0, 1, 2))
	data := saved(table, "a")
	for n := range data {
		again, r := NewTable[int](nil), snapshot.NewReader(data[:n])
		pass(again, &snapshot.Codec{Reader: r}, "a")
		if r.Err() == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(data))
		}
	}
	again, r := restored(t, data, nil, "a"), snapshot.NewReader(data)
	if pass(again, &snapshot.Codec{Reader: r}, "a"); r.Err() == nil {
		t.Error("a host was restored twice")
	}
}
