package answer

import (
	"strings"
	"testing"
	"time"
)

// Many programs load the driver and call nothing, such as the loader of a library. A report only counts them.
func TestReportOmitsProcessesWithoutCalls(t *testing.T) {
	t.Parallel()
	s := New(time.Now())
	s.Processes = []*Process{
		{PID: 7, Comm: "train", Calls: map[string]*Call{"cuMemAlloc_v2": {OK: 1}}, Ended: true},
		{PID: 8, Comm: "loader", Ended: true},
		{PID: 9, Comm: "starts"},
	}
	var out strings.Builder
	if err := s.Write(&out, nil); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for part, want := range map[string]bool{
		"PID 7 train": true, "PID 8": false, "PID 9 starts": true,
		"1 process ended without a call that gputap watches": true, "1 process running, 2 ended": true,
	} {
		if strings.Contains(text, part) != want {
			t.Errorf("%q is shown: %v\n%s", part, !want, text)
		}
	}
}
