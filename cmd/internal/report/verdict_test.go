package report

import (
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/leak"
)

// TestTimeUntilTheGPUIsFull: 0 is now, and nil is unknown.
func TestTimeUntilTheGPUIsFull(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		verdict leak.Verdict
		seconds *float64
		text    string
	}{
		{"unknown", leak.Verdict{}, nil, ""},
		{"full", leak.Verdict{Full: true}, new(0.0), "; the GPU is full"},
		{"soon", leak.Verdict{FullIn: 4 * time.Second}, new(4.0), "; the GPU is full in 1m"},
		{"later", leak.Verdict{FullIn: 90 * time.Minute}, new(5400.0), "; the GPU is full in 1h30m"},
	} {
		v := verdictOf(&row.verdict, &leak.Process{})
		known := v.FullInSeconds != nil && row.seconds != nil && *v.FullInSeconds == *row.seconds
		if text := v.FullText(); text != row.text || !known && (v.FullInSeconds != nil || row.seconds != nil) {
			t.Errorf("%s: %v, %q", row.name, v.FullInSeconds, text)
		}
	}
}

// TestVerdictNamesItsGPU: without a UUID, "unknown" would seem to be a state.
func TestVerdictNamesItsGPU(t *testing.T) {
	t.Parallel()
	for uuid, want := range map[string]string{"": "GPU unknown", "GPU-a0b1c2d3-0000-4000": "GPU-a0b1c2d3"} {
		v := verdictOf(&leak.Verdict{GPU: uuid}, &leak.Process{})
		if got := v.GPUText(); got != want {
			t.Errorf("%q is shown as %q, want %q", uuid, got, want)
		}
	}
}
