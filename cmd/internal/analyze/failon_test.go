package analyze

import (
	"bytes"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestFailOnOfTwoGPUs: the process has 100 on GPU-0, frees it, and has then 60 on GPU-1 and 30 on GPU-0. So it never
// holds 160, and its leak is 90.
func TestFailOnOfTwoGPUs(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-7")
	p := h.Process(7, second/2, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	p.Alloc(7, 0x100, 100, second, 0).Free(7, 0x100, 2*second, 0)
	p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 1}
	p.Alloc(7, 0x200, 60, 3*second, 0)
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	p.Alloc(7, 0x300, 30, 4*second, 0)
	path := recordingOf(t, 1, nil, recording.Message{Sequence: 1, Stored: wallStart,
		Subject: schema.Subject(0, "test", "gpu-7", schema.KindMemory), Data: bytes.Clone(h.Message())})
	for condition, want := range map[string]string{
		"peak>100": "", "peak>99": "peak>99: it is 100 B", "leak>89": "leak>89: it is 90 B", "leak>90": "",
	} {
		stdout, err := typed(t, "watermark", path, "--fail-on", condition)
		if want == "" && err != nil || want != "" && (app.ExitCode(err) != 3 || err.Error() != want) {
			t.Errorf("%s: %v, want %q of\n%s", condition, err, want, stdout)
		}
	}
}

func TestConditionShowsExactBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		measure string
		value   uint64
		want    string
	}{
		{"peak", 200430080, "191.15 MiB (200430080 bytes)"}, {"leak", 1023, "1023 B"},
		{"leak", 1024, "1.00 KiB (1024 bytes)"}, {"failed_calls", 200430080, "200430080"},
	} {
		if got := (&condition{measure: tt.measure}).format(tt.value); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.measure, got, tt.want)
		}
	}
}
