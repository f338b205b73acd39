package screen

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/consumer/anomaly"
)

// TestGravestAlertIsShown: an information does not hide a critical alert that is older.
func TestGravestAlertIsShown(t *testing.T) {
	t.Parallel()
	of := func(severity, rule string) anomaly.Alert {
		return anomaly.Alert{Severity: severity, Rule: rule, Host: "gpu-1", Time: ago(time.Minute)}
	}
	o := &answer.Overview{Time: now, Firing: []anomaly.Alert{of("info", "oom_recovered"), of("warning", "alloc_rate"),
		of("critical", "oom"), of("critical", "leak_growth")}} // newest first
	source := &fixed{overview: func(context.Context) (*answer.Overview, error) { return o, nil }}
	var out strings.Builder
	if _, err := Once(t.Context(), source, options(Plain), 80, 24, &out); err != nil {
		t.Fatal(err)
	}
	if line := lineWith(out.String(), "ALERT"); !strings.HasPrefix(line, "ALERT critical oom on gpu-1, ") {
		t.Errorf("the screen shows %q", line)
	}
}
