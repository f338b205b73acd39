package config

import (
	"strings"
	"testing"
	"time"
)

func TestAnomalyDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := DefaultAnomaly().Validate(); err != nil {
		t.Error(err)
	}
}

func TestWrongAnomalyValuesNameTheirKey(t *testing.T) {
	t.Parallel()
	for key, set := range map[string]func(*Anomaly){
		"anomaly.mode":                          func(a *Anomaly) { a.Mode = "on" },
		"anomaly.rules.oom.mode":                func(a *Anomaly) { a.Rules.OOM.Mode = "default" },
		"anomaly.rules.host_silent.mode":        func(a *Anomaly) { a.Rules.HostSilent.Mode = "" },
		"anomaly.rules.alloc_size.min_bytes":    func(a *Anomaly) { a.Rules.AllocSize.MinBytes = 0 },
		"anomaly.rules.alloc_size.allocations":  func(a *Anomaly) { a.Rules.AllocSize.Allocations = 0 },
		"anomaly.rules.alloc_size.factor":       func(a *Anomaly) { a.Rules.AllocSize.Factor = 1 },
		"anomaly.rules.alloc_size.hold":         func(a *Anomaly) { a.Rules.AllocSize.Hold = time.Millisecond },
		"anomaly.rules.launch_collapse.percent": func(a *Anomaly) { a.Rules.LaunchCollapse.Percent = 50 },
		"anomaly.rules.copy_regression.percent": func(a *Anomaly) { a.Rules.CopyRegression.Percent = 100 },
		"anomaly.rules.pageable_copies.min_bytes_per_second": func(a *Anomaly) {
			a.Rules.PageableCopies.MinBytesPerSecond = 0
		},
		"anomaly.rules.telemetry_loss.quiet": func(a *Anomaly) { a.Rules.TelemetryLoss.Quiet = 0 },
		"anomaly.exclude.job":                func(a *Anomaly) { a.Exclude.Job = []string{"ok", "["} },
		"anomaly.exclude.comm":               func(a *Anomaly) { a.Exclude.Comm = []string{"leak_growth=x"} },
	} {
		a := DefaultAnomaly()
		set(&a)
		if err := a.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

func TestAnomalyModeFlag(t *testing.T) {
	t.Parallel()
	cfg, err := Load("x", []string{"--anomaly-mode", "observe", "--anomaly.exclude.comm", "bench*,oom=test",
		"--anomaly.rules.alloc_size.min_bytes=2GiB"}, DefaultAnomalyCommand())
	if err != nil {
		t.Fatal(err)
	}
	a := cfg.Anomaly
	if a.Mode != ModeObserve || len(a.Exclude.Comm) != 2 || a.Rules.AllocSize.MinBytes != 2<<30 ||
		a.Rules.AllocSize.Factor != 8 {
		t.Errorf("got %+v", a)
	}
}
