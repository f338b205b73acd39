package tensor

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// TestGroupsOfTensors: a group is one thread and size class. It has blocks since the onset that are no longer young,
// and a model that was loaded meanwhile, in one window, is none. Many threads make many groups: ten are kept.
func TestGroupsOfTensors(t *testing.T) {
	t.Parallel()
	const minute = schema.KTime(time.Minute)
	for _, row := range []struct {
		name    string
		threads uint32
		want    []string
	}{
		{"two threads", 2, []string{"1 loader 1048576 15 10m0s", "2  1048576 15 10m0s"}},
		{"more than are kept", 5000, nil},
	} {
		s := &state{comms: map[uint32]string{1: "loader"}}
		d := &device{verdict: trend.Verdict{Onset: 10, OldUntil: 24}, series: trend.NewSeries(time.Minute, 0)}
		s.devices = []*device{d}
		ptr := uint64(0)
		hand := func(tid uint32, bytes uint64, at schema.KTime) {
			ptr += 1 << 30
			i := s.blocks.get()
			*s.blocks.at(i) = block{ptr: ptr, bytes: bytes, since: at, tid: tid}
			s.hand(d, i)
		}
		for n := range schema.KTime(9) { // before the onset
			hand(1, 1<<20, (1+n)*minute)
		}
		for range 20 {
			hand(3, 1<<28, 12*minute) // a model
		}
		for n := range schema.KTime(20) {
			for tid := range row.threads {
				hand(tid+1, 1<<20+uint64(n), (10+n)*minute)
			}
		}
		s.group(d, minute)
		first := slices.Clone(d.groups)
		var got []string
		for _, g := range d.groups {
			r := reportGroup(&g, func(at schema.KTime) time.Time { return time.Unix(0, int64(at)) })
			got = append(got, fmt.Sprint(r.TID, " ", r.Thread, " ", r.SizeClass, " ", r.Allocations, " ",
				time.Duration(r.Oldest.UnixNano())))
		}
		if row.want == nil && len(got) != trend.MaxGroups || row.want != nil && !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
		if s.group(d, minute); !reflect.DeepEqual(d.groups, first) {
			t.Errorf("%s: a second count differs", row.name)
		}
	}
}
