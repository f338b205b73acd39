package report

import (
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

// TestRemediesFitTheFeatures: a process that never waited needs no feature that is on already.
func TestRemediesFitTheFeatures(t *testing.T) {
	t.Parallel()
	const needs, unsure = "needs the features", "the process never waited"
	for name, row := range map[string]struct {
		watched  []string // nil: the answer of a fleet
		complete bool
		want     string
	}{
		"a run of all features":          {[]string{"memory", "launch", "copy", "sync"}, true, ""},
		"a run without sync":             {[]string{"memory", "launch", "copy"}, true, needs},
		"a fleet":                        {nil, false, unsure},
		"the recording of a fleet":       {[]string{"memory", "launch", "copy", "sync"}, false, ""},
		"one without a batch about sync": {[]string{"memory", "launch", "copy"}, false, unsure},
	} {
		s := New(time.Unix(1000, 0))
		if row.watched != nil {
			s.Watches(row.watched, row.complete)
		}
		info := process.Info{ID: schema.ProcessID{Host: "gpu-1", PID: 7}, Start: time.Unix(900, 0)}
		s.AddLaunches(&launch.Process{Info: info, Launches: 3, Funcs: []launch.Func{{Name: "gemm", Launches: 3}}})
		s.AddCopies(&bandwidth.Process{Info: info, Groups: []bandwidth.Group{
			{Direction: schema.HtoD, Async: bandwidth.Use{Calls: 2, Bytes: 9}}}})
		var out strings.Builder
		s.Processes[0].Describe(&out, s.Time)
		for _, text := range []string{needs, unsure} {
			if n := strings.Count(out.String(), text); n > 0 != (text == row.want) || n == 1 {
				t.Errorf("%s: %q %d times in\n%s", name, text, n, &out)
			}
		}
	}
}
