package answer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// TestActivityOfProcesses joins the rows of three folds. The rates were computed by hand.
func TestActivityOfProcesses(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0).UTC()
	info := func(pid uint32) process.Info {
		return process.Info{ID: schema.ProcessID{Host: "gpu-1", PID: pid}, Start: began, Comm: fmt.Sprint("job-", pid)}
	}
	o := &Overview{Time: began.Add(200 * time.Second)}
	o.addProcesses(
		[]memoryRow{
			{leak.Process{Info: info(1), Evidence: "late", LiveBytes: 5 << 20}, o.Time.Add(-30 * time.Second)},
			{leak.Process{Info: info(2), Evidence: "complete", Verdicts: []leak.Verdict{{State: trend.Suspect}}},
				o.Time},
			{leak.Process{Info: info(5), Evidence: "gap", Verdicts: []leak.Verdict{{State: trend.Growing}}},
				o.Time.Add(-31 * time.Second)},
			{leak.Process{Info: info(6), Evidence: "complete", Ended: true}, began},
		},
		[]launch.Process{
			{Info: info(1), Launches: 900, LastMinute: 30, HasMinute: true, Life: 100 * time.Second},
			{Info: info(3), Launches: 900, Life: 90 * time.Second},
			{Info: info(4), Launches: 1},
		},
		[]bandwidth.Process{
			{Info: info(1), Waits: bandwidth.Waits{Calls: 2, NS: 25e9}, Copies: []bandwidth.DirectionUse{
				{Direction: schema.HtoD, Bytes: 7}, {Set: true, Bytes: 4}}},
			{Info: info(2), Waits: bandwidth.Waits{Calls: 2, NS: 50e9}},
		})
	var got []string
	for _, a := range o.Processes {
		got = append(got, fmt.Sprintf("%s %s live %d launches/s %s wait %s copied %s", a.Comm, a.State(), a.LiveBytes,
			text(a.LaunchRate), text(a.WaitShare), text(a.Copied)))
	}
	want := []string{
		"job-1 running,late live 5242880 launches/s 0.5 wait 0.25 copied 11",
		"job-2 suspect live 0 launches/s - wait 0.25 copied 0",
		"job-5 silent,gap live 0 launches/s - wait - copied -",
		"job-6 ended live 0 launches/s - wait - copied -",
		"job-3 running live 0 launches/s 10 wait - copied -",
		"job-4 running live 0 launches/s - wait - copied -",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func text[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}
