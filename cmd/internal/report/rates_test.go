package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
)

// joined joins reports as a run with these features does.
func joined(features []string, launches []launch.Process, copies []bandwidth.Process) *Process {
	s := New(time.Unix(0, 0))
	s.Watches(features, true)
	for i := range launches {
		s.AddLaunches(&launches[i])
	}
	for i := range copies {
		s.AddCopies(&copies[i])
	}
	return s.Processes[0]
}

var paired = []string{"memory", "launch", "copy", "sync"}

func TestRatesOfLaunches(t *testing.T) {
	t.Parallel()
	p := joined(paired, []launch.Process{{
		Launches: 40, LastMinute: 30, HasMinute: true, Life: 10 * time.Second, GraphLaunches: 4,
		Funcs: []launch.Func{
			{Name: "a", Launches: 30, LastMinute: 24, Shapes: []launch.Shape{
				{Grid: [3]uint32{1, 1, 1}, Launches: 5, LastMinute: 3}, {Grid: [3]uint32{2, 1, 1}, Launches: 25},
			}},
			{Name: "b", Launches: 10},
		},
		Graphs: []launch.Graph{{Handle: 255, Launches: 1, LastMinute: 60, Kernels: 7, Partial: true}},
	}}, nil)
	got, _ := json.Marshal(struct {
		K []KernelRate
		G []GraphRate
		L []LaunchGaps
	}{p.TopKernels, p.Graphs, p.Gaps})
	want := `{"K":[{"kernel":"a","launches":30,"per_second":3,"per_second_last_minute":0.4,"share":0.75,"shapes":[` +
		`{"grid":[2,1,1],"block":[0,0,0],"shared_bytes":0,"launches":25,"per_second":2.5,` +
		`"per_second_last_minute":0,"share":0.625},` +
		`{"grid":[1,1,1],"block":[0,0,0],"shared_bytes":0,"launches":5,"per_second":0.5,` +
		`"per_second_last_minute":0.05,"share":0.125}]},` +
		`{"kernel":"b","launches":10,"per_second":1,"per_second_last_minute":0,"share":0.25,"shapes":[]}],` +
		`"G":[{"handle":"0xff","kernels_per_launch":7,"partial":true,"launches":1,"per_second":0.1,` +
		`"per_second_last_minute":1,"share":0.25}],"L":[]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestThroughputOfCopies(t *testing.T) {
	t.Parallel()
	use := func(bytes, ns uint64) bandwidth.Use { return bandwidth.Use{Calls: 1, Bytes: bytes, NS: ns} }
	for _, tt := range []struct {
		name     string
		features []string
		group    bandwidth.Group
		want     string
	}{
		{"synchronous", paired, bandwidth.Group{Sync: use(3e9, 1e9), Async: use(1, 0), Ended: use(5, 5)}, " 3 GB/s"},
		{"ended", paired, bandwidth.Group{Async: use(2e9, 0), Ended: use(2e9, 1e8), Behind: use(1, 9)}, " ≥ 20 GB/s"},
		{"only behind kernels", paired, bandwidth.Group{Async: use(1e9, 0), Behind: use(1e9, 5e8)}, " ≥ 2 GB/s"},
		{"no wait", paired, bandwidth.Group{Async: use(1e9, 0)}, " submitted only"},
		{"without sync", paired[:3], bandwidth.Group{Async: use(1e9, 0)}, " needs sync"},
	} {
		p := joined(tt.features, nil, []bandwidth.Process{{Groups: []bandwidth.Group{tt.group}}})
		var out strings.Builder
		writeGroups(&out, p)
		if row := strings.Split(out.String(), "\n")[1]; !strings.HasSuffix(row, tt.want) {
			t.Errorf("%s: row %q, want %q at its end", tt.name, row, tt.want)
		}
		if got := p.CopyGroups[0]; (got.Ended == nil) != (len(tt.features) == 3) ||
			got.Bytes != tt.group.Sync.Bytes+tt.group.Async.Bytes {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// A report names the features that it lacks.
func TestGapsNeedSync(t *testing.T) {
	t.Parallel()
	for _, features := range [][]string{paired, {"launch"}} {
		p := joined(features, []launch.Process{{Funcs: []launch.Func{{Name: "a", Launches: 1}}}}, nil)
		var out strings.Builder
		writeGaps(&out, p)
		needs := strings.Contains(out.String(), "needs the features launch and sync")
		if needs != (len(features) == 1) {
			t.Errorf("%v: %q", features, out.String())
		}
	}
}

// A fleet does not say which features its hosts watch. A process that waited was watched with sync.
func TestWaitsShowThatSyncIsWatched(t *testing.T) {
	t.Parallel()
	group := bandwidth.Group{Async: bandwidth.Use{Calls: 1, Bytes: 9}}
	p := joined(nil, []launch.Process{{Funcs: []launch.Func{{Name: "a", Launches: 1}}}},
		[]bandwidth.Process{{Groups: []bandwidth.Group{group}}})
	for _, waits := range []uint64{0, 3} {
		p.Waits.Calls = waits
		var out strings.Builder
		writeGaps(&out, p)
		writeGroups(&out, p)
		if got, want := strings.Count(out.String(), "needs the features"), 2-min(int(waits), 2); got != want {
			t.Errorf("%d waits: %q", waits, out.String())
		}
	}
}
