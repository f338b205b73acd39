package inspect

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/harness/terminal"
)

// asProgram is the variable that makes this test binary run gputap's commands.
const asProgram = "GPUTAP_TEST_AS_PROGRAM"

// start starts gputap on a terminal, as its controlling terminal.
func (f *simFleet) start(tty *terminal.Terminal, environment []string, args ...string) *exec.Cmd {
	f.tb.Helper()
	self, err := os.Executable()
	f.check(err)
	cmd := exec.Command(self, append(args, "--nats.url", f.url)...)
	cmd.Env = append(slices.Concat(os.Environ(), environment), asProgram+"=1", "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty.Program, tty.Program, tty.Program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	f.check(cmd.Start())
	f.tb.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestTopOnATerminal runs gputap top on a terminal against a fleet: it sorts, opens a process down to the address of
// its allocation, follows the size of the terminal, and ends with the key q.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	var live uint64
	running, largest := 0, f.processes[0]
	for _, p := range f.processes {
		live += p.live
		if !p.ended {
			running++
		}
		if p.live > largest.live {
			largest = p
		}
	}
	tty := terminal.Open(t, 80, 24)
	cmd := f.start(tty, nil, "top", "--interval", "20ms")
	screen := tty.AwaitText(fmt.Sprintf("8 hosts  %d processes  %s live", running, app.Bytes(live)), "3 of 3 shards",
		"not running: anomaly, bandwidth, launch", "GROWTH/H\n>")
	first := strings.Fields(screen[strings.Index(screen, "\n>")+2:])
	want := []string{"running", largest.host, fmt.Sprint(largest.pid), largest.user, largest.comm}
	if !slices.Equal(first[:5], want) {
		t.Errorf("the first row is %v, want %v", first, want)
	}
	tty.Type(">")
	tty.AwaitText("by peak", "PEAK\n")
	tty.Type("<\r")
	tty.AwaitText(fmt.Sprintf("%s/%s/%d", largest.cluster, largest.host, largest.pid), "1 allocation\n", "device")
	tty.Type("\r")
	tty.AwaitText("0x200000000", app.Bytes(largest.live), "cuMemAlloc_v2")
	tty.Resize(160, 24)
	tty.AwaitText("GPU-" + largest.host + "\n")
	tty.Type("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v", err)
	}
	if screen, ok := tty.Await(func(screen string) bool { return !strings.Contains(screen, "ADDRESS") }); !ok {
		t.Errorf("the screen stays behind\n%s", screen)
	}
}

var colour = regexp.MustCompile(`\x1b\[[0-9;]*\b[34][0-8][0-9;]*m`)

// TestTopSurvivesItsServer stops the server: the last answer stays, with an error, which is red unless NO_COLOR is set.
func TestTopSurvivesItsServer(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	type session struct {
		tty *terminal.Terminal
		cmd *exec.Cmd
	}
	sessions := map[string]session{}
	for _, variable := range []string{"NO_COLOR=", "NO_COLOR=1"} {
		tty := terminal.Open(t, 100, 24)
		sessions[variable] = session{tty,
			f.start(tty, []string{variable}, "top", "--interval", "20ms", "--timeout", "300ms")}
		tty.AwaitText("8 hosts")
	}
	f.server.Shutdown()
	for variable, s := range sessions {
		// Not the number of hosts: a slow machine may have lost a shard before.
		s.tty.AwaitText(" hosts  ", "cannot refresh: NATS is unreachable")
		f.check(s.cmd.Process.Signal(os.Interrupt))
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("ends with %v", err)
		}
		if colour.MatchString(s.tty.Written()) != (variable == "NO_COLOR=") {
			t.Errorf("%s: colours: %t", variable, variable != "NO_COLOR=")
		}
	}
}

// TestTopOnce prints one screen of a size that variables give, without a terminal.
func TestTopOnce(t *testing.T) {
	f := leakFleet(t)
	t.Setenv("COLUMNS", "110")
	t.Setenv("LINES", "7")
	stdout, stderr, err := f.typed("top", "--once", "--sort", "host", "--cluster", "east", "--host", "gpu-[24]")
	if err != nil || stderr != "" {
		t.Fatalf("ends with %v, %s", err, stderr)
	}
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if len(lines) != 7 || !strings.HasPrefix(lines[0], "2 hosts  6 processes") ||
		!strings.HasPrefix(lines[3], " running") ||
		!strings.HasSuffix(lines[1], "by host  cluster=east host=gpu-[24]") || strings.Contains(stdout, "\x1b") {
		t.Errorf("prints %d lines\n%s", len(lines), stdout)
	}
	for _, line := range lines {
		if len([]rune(line)) > 110 {
			t.Errorf("a line is too long: %s", line)
		}
	}
}

func TestWrongFlagsOfTop(t *testing.T) {
	t.Parallel()
	f := &simFleet{tb: t, url: "nats://127.0.0.1:1"}
	for line, want := range map[string]string{
		"top": "use --once", "top --once --sort size": "unknown order", "top --once --interval 0s": "more than 0",
		"top --once --host gpu-[": `--host "gpu-["`, "top x": "unknown command",
	} {
		_, _, err := f.typed(strings.Fields(line)...)
		if code := app.ExitCode(err); err == nil || code != 2 && line != "top x" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s ends with %d, %v", line, app.ExitCode(err), err)
		}
	}
}

// TestTopAsJSON compares the processes with the truth. The folds that do not run leave their figures null.
func TestTopAsJSON(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	stdout, _, err := f.typed("top", "-o", "json", "--sort", "peak", "--cluster", "west")
	f.check(err)
	var got struct {
		Hosts, Heard, Total int
		Items               []struct {
			Host, Comm, State string
			PID               uint32
			Live              uint64   `json:"live_bytes"`
			Peak              uint64   `json:"peak_bytes"`
			Launches          *float64 `json:"launches_per_second"`
		}
	}
	f.check(json.Unmarshal([]byte(stdout), &got))
	want := slices.DeleteFunc(slices.Clone(f.processes), func(p held) bool { return p.cluster != "west" })
	slices.SortStableFunc(want, func(a, b held) int {
		return slices.Compare([]int{int(b.peak >> 10), strings.Compare(a.host, b.host), int(a.pid)},
			[]int{int(a.peak >> 10), 0, int(b.pid)})
	})
	if got.Hosts != 4 || got.Heard != 4 || got.Total != len(want) || len(got.Items) != len(want) {
		t.Fatalf("got %d hosts, %d heard, %d of %d items, want %d", got.Hosts, got.Heard, len(got.Items), got.Total,
			len(want))
	}
	for i, p := range got.Items {
		state := "running"
		if want[i].ended {
			state = "ended"
		}
		is := held{host: p.Host, pid: p.PID, comm: p.Comm, live: p.Live, peak: p.Peak}
		w := want[i]
		if is != (held{host: w.host, pid: w.pid, comm: w.comm, live: w.live, peak: w.peak}) || p.State != state ||
			p.Launches != nil {
			t.Errorf("item %d is %+v, want %+v", i, p, w)
		}
	}
}
