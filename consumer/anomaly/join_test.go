package anomaly

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/snapshot"
)

// shard returns the section of a host in which each process had one failed allocation.
func shard(t *testing.T, host *consumertest.Host, processes uint32) []snapshot.Section {
	d := New(Config{})
	fail(t, d, host, processes, 1)
	return consumertest.Sections(t, d)[1:]
}

func fail(t *testing.T, d *Detector, host *consumertest.Host, processes uint32, bytes uint64) {
	for i := range processes {
		host.Process(1+i, 1, "train").Fail("cuMemAlloc_v2", 1, 2, bytes, second)
	}
	apply(t, d, host.Batch())
}

// repeats returns the alerts as host/process+repeats.
func repeats(d *Detector) (all []string) {
	for _, a := range d.Alerts() {
		all = append(all, fmt.Sprintf("%s/%d+%d", a.Host, a.PID, a.Repeats))
	}
	return all
}

// Each shard numbers its alerts from 0. A repetition counts for the alert of its own host, in whatever order hosts
// are joined.
func TestRepeatsCountForTheAlertOfTheirHost(t *testing.T) {
	t.Parallel()
	x, y := consumertest.Memory(t, "x"), consumertest.Memory(t, "y")
	sections := append(shard(t, x, 2), shard(t, y, 2)...)
	d := consumertest.Restore(t, New(Config{}), sections)
	saved := consumertest.Sections(t, d)
	slices.Reverse(sections)
	for _, from := range [][]snapshot.Section{sections, saved} {
		again := consumertest.Sections(t, consumertest.Restore(t, New(Config{}), from))
		for i := range saved {
			if !bytes.Equal(again[i].Data, saved[i].Data) {
				t.Errorf("the section of %q differs", saved[i].Host)
			}
		}
	}
	fail(t, d, y, 1, 5)
	if got, want := repeats(d), []string{"x/1+0", "y/1+1", "x/2+0", "y/2+0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	fail(t, d, y, 3, 5)
	if got, want := repeats(d), []string{"x/1+0", "y/1+2", "x/2+0", "y/2+1", "y/3+0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if d.history.total != 3 {
		t.Errorf("the next alert has number %d", d.history.total)
	}
}

// If two shards have too many alerts together, the lowest numbers are dropped. A repetition of a dropped alert changes
// no other alert.
func TestJoinedAlertsKeepTheirLimit(t *testing.T) {
	t.Parallel()
	x, y := consumertest.Memory(t, "x"), consumertest.Memory(t, "y")
	many, few := shard(t, x, maxAlerts+1), shard(t, y, 2) // of many, alert 0 is dropped already
	for _, sections := range [][]snapshot.Section{append(slices.Clone(many), few...),
		append(slices.Clone(few), many...)} {
		d := consumertest.Restore(t, New(Config{}), sections)
		fail(t, d, x, 2, 5)
		fail(t, d, y, 1, 5)
		got := repeats(d)
		if len(got) != maxAlerts || got[0] != "y/2+0" || got[1] != "x/3+0" || got[maxAlerts-1] != "x/1001+0" {
			t.Errorf("%d alerts, %q", len(got), got[:2])
		}
		if n := len(d.raised.Page()); n != 2 {
			t.Errorf("%d series, want one per host", n)
		}
	}
}

func TestDuplicateAlertIsRefused(t *testing.T) {
	t.Parallel()
	d := New(Config{})
	fail(t, d, consumertest.Memory(t, "x"), 1, 1)
	id := snapshot.HostID{Cluster: "test", Host: "x"}
	twice := d.form(map[snapshot.HostID][]numbered{id: append(slices.Clone(d.history.kept), d.history.kept...)})
	err := twice.Save(&snapshot.Writer{}, []snapshot.HostID{id}, func(s snapshot.Section) error {
		if s.Host == "" {
			return nil
		}
		return New(Config{}).Restore(s)
	})
	if !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("a duplicate alert: got %v, want ErrDamaged", err)
	}
}

// Hosts of several shards have more series than the limit. The limit holds, and no alert is lost.
func TestJoinedSeriesKeepTheirLimit(t *testing.T) {
	t.Parallel()
	const each = process.MaxSeries - 100
	joined := New(Config{})
	for _, name := range []string{"x", "y", "z"} {
		d, host := New(Config{}), consumertest.Memory(t, name)
		for i := range uint32(each) {
			host.Process(1+i, 1, fmt.Sprint("job", i)).Fail("cuMemAlloc_v2", 1, 2, 1, second)
		}
		apply(t, d, host.Batch())
		consumertest.Restore(t, joined, consumertest.Sections(t, d)[1:])
	}
	page, sum := joined.raised.Page(), process.Count(0)
	for _, n := range page {
		sum += n
	}
	if n := len(page); n != process.MaxSeries-1 || sum != 3*each {
		t.Errorf("%d series of %d alerts, want %d of %d", n, sum, process.MaxSeries-1, 3*each)
	}
}
