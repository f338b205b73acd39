package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	cause := errors.New("x")
	for want, err := range map[int]error{
		0: nil, 1: cause, 2: Usage(cause), 3: Findings(cause), 4: Incomplete(cause), 5: Unreachable(cause),
		6: Privilege(cause),
	} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v ends with %d, want %d", err, got, want)
		}
	}
	if got := ExitCode(Usage(fmt.Errorf("more: %w", Privilege(cause)))); got != 6 {
		t.Errorf("the inner status is lost: exit status %d", got)
	}
	if !errors.Is(Usage(cause), cause) {
		t.Error("the cause is lost")
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 25_165_824: "24.00 MiB", 73_666_560: "70.25 MiB",
		1 << 62: "4.00 EiB", 1<<30 - 4096: "1.00 GiB", 1<<30 - 16384: "1023.98 MiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	p := &Process{Log: slog.New(slog.DiscardHandler), Metrics: registry("test")}
	url, stop, err := p.Serve(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for path, want := range map[string]string{"/metrics": "gputap_build_info{", "/livez": "ok", "/readyz": "ok"} {
		response, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s answers %d %.80q, want %q in it", path, response.StatusCode, body, want)
		}
	}
	taken := strings.TrimPrefix(url, "http://")
	if _, _, err := p.Serve(t.Context(), taken); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("an address in use gives %v", err)
	}
}

func TestReadyzReportsUnmetCondition(t *testing.T) {
	t.Parallel()
	p := &Process{Log: slog.New(slog.DiscardHandler), Metrics: registry("test")}
	missing := errors.New("NATS is unreachable")
	p.ReadyWhen(func() error { return nil })
	p.ReadyWhen(func() error { return missing })
	for want, err := range map[int]error{http.StatusServiceUnavailable: missing, http.StatusOK: nil} {
		missing = err
		answer := httptest.NewRecorder()
		p.ready(answer, nil)
		if answer.Code != want || err != nil && !strings.Contains(answer.Body.String(), err.Error()) {
			t.Errorf("with %v: %d %q", err, answer.Code, answer.Body)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := NewTable("HOST", "PID", "LIVE", "COMMAND")
	table.Row("gpu-1", uint32(7), Amount(73_666_560), "python3")
	table.Row("h", uint32(123456), Amount(1), "\x1b[31mevil\u009b")
	var out strings.Builder
	table.Write(&out)
	want := "" +
		"HOST      PID       LIVE  COMMAND\n" +
		"gpu-1       7  70.25 MiB  python3\n" +
		"h      123456        1 B  ?[31mevil?\n"
	if out.String() != want {
		t.Errorf("wrote\n%s, want\n%s", out.String(), want)
	}
}

// TestBinariesLeaveOutPackages keeps eBPF out of consumers, and the NATS server out of daemons.
func TestBinariesLeaveOutPackages(t *testing.T) {
	t.Parallel()
	daemons, err := filepath.Glob("../../gputap-*")
	if err != nil || len(daemons) == 0 {
		t.Fatalf("no programs in cmd: %v", err)
	}
	for _, folder := range daemons {
		binary, forbidden := filepath.Base(folder), []string{"nats-server", "cilium/ebpf"}
		if binary == "gputap-producer" {
			forbidden = []string{"nats-server", "gputap/consumer"}
		}
		out, err := exec.Command("go", "list", "-deps", folder).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range forbidden {
			if strings.Contains(string(out), f) {
				t.Errorf("%s contains %s", binary, f)
			}
		}
	}
}
