package inspect

import (
	"bytes"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/local"
)

// TestSeveralRunsAreNamedOnce: gputap top connects again, and must not write on its screen.
func TestSeveralRunsAreNamedOnce(t *testing.T) {
	t.Parallel()
	for want, others := range map[string][]int{
		"": nil,
		"3 runs of gputap on this host; PID 9 answers, as the newest; --pid asks another: 8, 5\n": {8, 5},
	} {
		var errs bytes.Buffer
		q := &question{p: &app.Process{Stderr: &errs}}
		for range 2 {
			q.tellOthers(&local.Run{PID: 9, Others: others})
		}
		if errs.String() != want {
			t.Errorf("got %q, want %q", errs.String(), want)
		}
	}
}
