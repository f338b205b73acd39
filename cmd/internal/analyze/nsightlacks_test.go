package analyze

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
)

const (
	copyTable = `CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, globalPid INTEGER, bytes INTEGER,
		copyKind INTEGER);`
	oneCopy = copyTable + "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (10000, 10001, 4242 << 24, 100, 1);"
	noRows  = "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME; DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS;"
	fabric  = `CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
		INSERT INTO ENUM_CUDA_MEM_KIND VALUES (2, '', 'Fabric'), (6, '', 'Managed Static');`
)

// called adds a call with a result to the export.
func called(name, result string) string {
	return "INSERT INTO StringIds VALUES (9, '" + name + `');
		INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (9000, 9100, 0, 4242 << 24 | 4243, 99, 9, ` + result + ", NULL);"
}

// TestNsightExportLacks removes or changes tables of the export. What an answer needs makes it incomplete; the rest is
// a note.
func TestNsightExportLacks(t *testing.T) {
	t.Parallel()
	const missing, note = `"complete":false,"missing":["`, `"complete":true,"missing":[],"notes":["`
	for _, tt := range []struct {
		name, statements, command string
		code                      int
		want                      []string // in the JSON, and without the begin of a list in what is said
	}{
		{"an unknown kind of memory", fabric, "leakage", 4, []string{`"unknown_kinds":3`, missing,
			"3 memory events have the unknown kind of memory ", "FABRIC", "with 12.00 KiB of allocations",
			`"live_bytes":64`}},
		{"an unknown number of a kind", "UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memKind = memKind + 40", "leakage", 4,
			[]string{"3 memory events have the unknown kind of memory ", "no table ENUM_CUDA_MEM_KIND"}},
		{"an unknown number in usage", "UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memKind = 42", "usage", 4,
			[]string{`"unknown_kinds":4`, "no table ENUM_CUDA_MEM_KIND"}},
		{"no kind", "UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memKind = 'x'", "watermark", 4,
			[]string{"4 memory events have no kind of memory"}},
		{"pageable memory", "UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memKind = 0 WHERE memKind = 6", "leakage", 0,
			[]string{`"unknown_kinds":0`, `"live_bytes":8192`}},
		{"an unknown operation", "UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET memoryOperationType = 42", "leakage", 4,
			[]string{"4 rows of the export cannot be used, 4 for an unknown memory operation",
				"no table ENUM_CUDA_DEV_MEM_EVENT_OPER"}},
		{"the enumerations", "", "leakage", 0, []string{note, "the export has no table ENUM_CUDA_MEM_KIND: "}},
		{"an unknown kind is no matter of launches", fabric, "launches", 0, []string{note}},

		{"the start of the session", "DROP TABLE TARGET_INFO_SESSION_START_TIME", "leakage", 0, []string{note,
			"no table TARGET_INFO_SESSION_START_TIME: times count from the start of the session, shown as 1970"}},
		{"the time of the session", "DELETE FROM TARGET_INFO_SESSION_START_TIME", "usage", 0, []string{
			"the export does not tell when its session began: times count from the start of the session"}},
		{"the call stacks", "DROP TABLE CUDA_CALLCHAINS", "leakage", 0, []string{note,
			"the export has no table CUDA_CALLCHAINS: no call stacks"}},

		{"sets", oneCopy, "bandwidth", 0, []string{note, "no table CUPTI_ACTIVITY_KIND_MEMSET: no memory sets"}},
		{"copies and sets", "", "bandwidth", 0, []string{note, "no table CUPTI_ACTIVITY_KIND_MEMCPY: no copies"}},
		{"kernels", "", "launches", 0, []string{note, "no table CUPTI_ACTIVITY_KIND_KERNEL: no kernel launches"}},
		{"sets that were called", oneCopy + called("cudaMemsetAsync_v3020", "0"), "bandwidth", 4, []string{missing,
			"no table CUPTI_ACTIVITY_KIND_MEMSET: no memory sets are known, but the program called cudaMemsetAsync"}},
		{"sets that failed", oneCopy + called("cudaMemset_v3020", "2"), "bandwidth", 0, []string{note}},
		{"kernels that were called", called("cudaLaunchKernel_v7000", "0"), "launches", 4, []string{missing,
			"no kernel launches are known, but the program called cudaLaunchKernel"}},
		{"any row of CUDA", copyTable + noRows, "launches", 4, []string{missing,
			"no table CUPTI_ACTIVITY_KIND_KERNEL"}},
		{"memory events", oneCopy + "DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS", "leakage", 4, []string{missing,
			"no table CUDA_GPU_MEMORY_USAGE_EVENTS"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			cmd := Command(&app.Process{Stdout: &stdout, Stderr: &stderr, Log: slog.New(slog.DiscardHandler)})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{tt.command, exported(t, tt.statements), "-o", "json"})
			err := cmd.ExecuteContext(t.Context())
			if app.ExitCode(err) != tt.code {
				t.Errorf("status %d: %v", app.ExitCode(err), err)
			}
			said := stderr.String()
			if err != nil {
				said += err.Error()
			}
			for _, text := range tt.want {
				if !strings.Contains(stdout.String(), text) {
					t.Errorf("%s is not in %s", text, stdout.String())
				}
				if !strings.Contains(text, `"`) && !strings.Contains(said, text) {
					t.Errorf("%s is not in %q", text, said)
				}
			}
		})
	}
}

// TestDiffOfNsightExports: a table that only one export lacks makes the difference incomplete.
func TestDiffOfNsightExports(t *testing.T) {
	t.Parallel()
	whole, part := exported(t, oneCopy), exported(t, oneCopy+"DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS")
	stdout, err := typed(t, "diff", whole, part, "-o", "json")
	const lacks = "b: the export has no table CUDA_GPU_MEMORY_USAGE_EVENTS"
	const note = `"notes":["a: the export has no table `
	if app.ExitCode(err) != 4 || !strings.Contains(stdout, lacks) || !strings.Contains(stdout, note) {
		t.Errorf("status %d, %v, %s", app.ExitCode(err), err, stdout)
	}
	if stdout, err = typed(t, "diff", part, part, "-o", "json"); err != nil {
		t.Errorf("both lack it: %v, %s", err, stdout)
	}
}

// TestPlotLogOverUnknownSession follows the advice of the message: then the log is drawn.
func TestPlotLogOverUnknownSession(t *testing.T) {
	t.Parallel()
	path, dir := exported(t, "DROP TABLE TARGET_INFO_SESSION_START_TIME"), t.TempDir()
	log := filepath.Join(dir, "smi.csv")
	check(t, os.WriteFile(log, []byte("timestamp, memory.used [MiB]\n2026/11/24 19:00:01.123, 5 MiB\n"), 0o600))
	draw := func(args ...string) error {
		cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"usage", path, "--smi", log, "-o", filepath.Join(dir, "chart.svg")}, args...))
		return cmd.ExecuteContext(t.Context())
	}
	err := draw()
	if app.ExitCode(err) != 4 || !strings.Contains(err.Error(), "does not tell when its session began") {
		t.Fatalf("status %d: %v", app.ExitCode(err), err)
	}
	_, advice, _ := strings.Cut(err.Error(), "--smi-offset=")
	offset, _, found := strings.Cut(advice, " ")
	if err := draw("--smi-offset=" + offset); !found || err != nil {
		t.Errorf("with --smi-offset=%s: %v", offset, err)
	}
}
