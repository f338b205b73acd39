package analyze

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

func TestMain(m *testing.M) { os.Exit(bustest.Main(m)) }

// TestRangeOfBus asks a real bus without a recording. The range begins behind the first message: what that one
// allocated is live at the beginning. The figures are those of TestWatermarkAndLeakage.
func TestRangeOfBus(t *testing.T) {
	t.Parallel()
	server := bustest.NewServer(t, "")
	js := server.Connect()
	check(t, bus.EnsureStreams(t.Context(), js, bus.StreamOptions{Shards: 1}))
	var stored []time.Time
	for _, message := range twoProcesses(t) {
		stored = append(stored, time.Now())
		_, err := js.Publish(t.Context(), schema.Subject(0, "test", "gpu-7", schema.KindMemory), message)
		check(t, err)
	}
	storedAt := func(i int) string { return stored[i].UTC().Format(time.RFC3339Nano) }
	on := func(args ...string) []string { return append(args, "--nats.url", server.URL(), "-o", "json") }

	stdout, err := typed(t, on("leakage", "--comm", "serve", "--since", storedAt(1))...)
	check(t, err)
	want := []string{"8 GPU-1 25 <nil> 0x200:20:device:8:cuMemAlloc_v2:" + at(4) +
		" 0x300:5:managed:8:cuMemAllocManaged:" + at(5)}
	if got := brief(t, stdout, "live_bytes", ""); !reflect.DeepEqual(got, want) {
		t.Errorf("leakage: got %q, want %q", got, want)
	}
	// Behind the last message of the range, serve holds 10 and train 50: its 100 are freed.
	stdout, err = typed(t, on("leakage", "--since", storedAt(1), "--until", storedAt(2))...)
	check(t, err)
	want = []string{"7 GPU-0 50 <nil> 0x200:50:device:9:cuMemAlloc_v2:" + at(2),
		"8 GPU-1 10 <nil> 0x100:10:device:8:cuMemAlloc_v2:" + at(1)}
	if got := brief(t, stdout, "live_bytes", ""); !reflect.DeepEqual(got, want) {
		t.Errorf("until: got %q, want %q", got, want)
	}
	// --since names the range to record, and selects none of its processes.
	_, err = typed(t, on("launches", "--since", storedAt(0))...)
	check(t, err)
	_, err = typed(t, on("launches", "--since", storedAt(0), "--comm", "typo")...)
	if app.ExitCode(err) != 4 || !strings.HasSuffix(err.Error(), ": no process is selected by --comm typo") {
		t.Errorf("status %d, %v", app.ExitCode(err), err)
	}
}
