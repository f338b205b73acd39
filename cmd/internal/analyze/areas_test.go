package analyze

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestChartNamesTellProcessesApart: a chart of several hosts or clusters names them.
func TestChartNamesTellProcessesApart(t *testing.T) {
	t.Parallel()
	of := func(cluster, host string) *analysis.Process {
		return &analysis.Process{Info: process.Info{ID: schema.ProcessID{Cluster: cluster, Host: host, PID: 301},
			Comm: "python3"}, GPUs: []analysis.GPU{{}}, Groups: []analysis.Group{{Class: schema.ClassDevice}}}
	}
	for _, tt := range []struct {
		other              *analysis.Process
		process, host, gpu string
	}{
		{of("a", "gpu-7"), "python3 (301)", "gpu-7", "GPU 0"},
		{of("a", "gpu-8"), "gpu-7/301 python3", "gpu-7", "gpu-7 GPU 0"},
		{of("b", "gpu-7"), "a/gpu-7/301 python3", "a/gpu-7", "a/gpu-7 GPU 0"},
	} {
		p := of("a", "gpu-7")
		n := newNames([]*analysis.Process{p, tt.other})
		for by, want := range map[string]string{byProcess: tt.process, "host": tt.host, byGPU: tt.gpu} {
			if got := n.of(p, by); len(got) != 1 || got[0] != want {
				t.Errorf("by %s: got %q, want %q", by, got, want)
			}
		}
	}
}

// TestWatermarkOfSeveralHosts: the processes have one PID and one name. Each has a line, and a mark at its own peak.
func TestWatermarkOfSeveralHosts(t *testing.T) {
	t.Parallel()
	var messages []recording.Message
	for i := range uint64(9) {
		h := consumertest.Memory(t, fmt.Sprint("gpu-", i))
		h.Process(301, second/2, "python3").Alloc(301, 0x100, (i+1)*mib, second, 0).Exit(2 * second)
		messages = append(messages, recording.Message{Sequence: 1 + i, Stored: wallStart,
			Subject: schema.Subject(0, "test", h.Header.Host, schema.KindMemory), Data: bytes.Clone(h.Message())})
	}
	path, out := recordingOf(t, 1, nil, messages...), filepath.Join(t.TempDir(), "chart.svg")
	cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
	cmd.SetArgs([]string{"watermark", path, "-o", out})
	check(t, cmd.ExecuteContext(t.Context()))
	svg, err := os.ReadFile(out)
	check(t, err)
	for i := range 9 {
		label, drawn := fmt.Sprintf("gpu-%d/301 python3: %d MiB at ", i, i+1), i >= 2
		if strings.Contains(string(svg), label) != drawn {
			t.Errorf("host %d: want a line with the label %q: %t", i, label, drawn)
		}
	}
}
