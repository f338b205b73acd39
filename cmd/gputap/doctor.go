package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/producer/preflight"
)

// finding is one row of the doctor's report.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warn or fail
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "fail"
)

func doctorCommand(p *app.Process) *cobra.Command {
	var output, natsURL string
	var libraries []string
	var pid uint32
	var forTime time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what gputap needs here, with a remedy beside each failing row",
		Long: `Check kernel, BTF, capabilities, driver libraries and NATS. With --pid audit one running process instead:
which driver functions it has, which of them gputap sees, and what it cannot see. Exit status 0: gputap runs
here; 3: a row failed.`,
		Example: "  sudo gputap doctor\n  sudo gputap doctor -o json\n  gputap doctor --nats.url nats://bus:4222\n" +
			"  sudo gputap doctor --pid 4242 --for 10s",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("pid") {
				if forTime <= 0 {
					return app.Usage(fmt.Errorf("--for %s: use a time above 0", forTime))
				}
				return concludeChecks(p.Stdout, output, auditProcess(cmd.Context(), pid, forTime, libraries))
			}
			return doctor(p.Stdout, output, cmp.Or(natsURL, os.Getenv("GPUTAP_NATS__URL")), libraries)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().StringVar(&natsURL, "nats.url", "", "NATS servers to look for, separated by commas [$GPUTAP_NATS__URL] (default: none, gputap run brings its own)")
	cmd.Flags().StringArrayVar(&libraries, "library", nil, "driver library to look at besides those found (repeatable)")
	cmd.Flags().Uint32Var(&pid, "pid", 0, "audit this process instead")
	cmd.Flags().DurationVar(&forTime, "for", 2*time.Second, "how long to watch what the process does")
	return cmd
}

func doctor(out io.Writer, output, natsURL string, libraries []string) error {
	rows := []finding{checkKernel(), checkBTF(), checkCapabilities(), checkPrograms(), checkReturnProbes()}
	rows = append(rows, checkLockdown()...)
	rows = append(rows, checkLibraries(libraries)...)
	return concludeChecks(out, output, append(rows, checkNATS(natsURL)))
}

// concludeChecks writes the rows and fails when one did.
func concludeChecks(out io.Writer, output string, rows []finding) error {
	failed := 0
	for _, r := range rows {
		if r.Status == statusFail {
			failed++
		}
	}
	if err := writeFindings(out, output, rows, failed == 0); err != nil {
		return err
	}
	if failed > 0 {
		return app.Findings(fmt.Errorf("%s failed", plural(uint64(failed), "check", "checks")))
	}
	return nil
}

func writeFindings(out io.Writer, output string, rows []finding, ok bool) error {
	switch output {
	case "json":
		return json.NewEncoder(out).Encode(map[string]any{"ok": ok, "checks": rows})
	case "table":
		for _, r := range rows {
			fmt.Fprintf(out, "%-5s %-14s %s\n", r.Status, r.Check, r.Found)
			if r.Remedy != "" {
				fmt.Fprintf(out, "%-5s %-14s → %s\n", "", "", r.Remedy)
			}
		}
		return nil
	}
	return app.Usage(fmt.Errorf("--output %q: use table or json", output))
}

func checkKernel() finding {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	f := finding{Check: "Linux", Status: statusOK, Found: strings.TrimSpace(string(release)) + " " + runtime.GOARCH}
	var major, minor int
	if _, scan := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil || scan != nil {
		f.Status, f.Remedy = statusWarn, "the release could not be read; 5.15 or newer is needed"
	} else if major < 5 || major == 5 && minor < 15 {
		f.Status, f.Remedy = statusFail, "update to Linux 5.15 or newer: older ones have no attach cookies"
	}
	return f
}

func checkBTF() finding {
	const path = "/sys/kernel/btf/vmlinux"
	f := finding{Check: "BTF", Status: statusOK, Found: path}
	if _, err := os.Stat(path); err != nil {
		f.Status, f.Found = statusFail, err.Error()
		f.Remedy = "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; in a container mount /sys"
	}
	return f
}

func checkCapabilities() finding {
	f := finding{Check: "capabilities", Status: statusOK}
	missing, err := preflight.Missing()
	if err != nil {
		return finding{Check: f.Check, Status: statusWarn, Found: err.Error(), Remedy: "let this program call capget"}
	}
	if len(missing) == 0 {
		var have []string
		for _, c := range preflight.Capabilities {
			have = append(have, c.Name)
		}
		f.Found = strings.Join(have, " ")
		return f
	}
	f.Status = statusWarn
	var lack []string
	for _, c := range missing {
		lack = append(lack, c.Name+" is missing: without it "+c.Without)
		if c.Vital {
			f.Status = statusFail
		}
	}
	f.Found, f.Remedy = strings.Join(lack, "; "), preflight.CapabilityRemedy
	return f
}

// checkLockdown is quiet where there is none.
func checkLockdown() []finding {
	f := finding{Check: "lockdown", Status: statusOK, Found: preflight.Lockdown()}
	switch f.Found {
	case "", "none":
		return nil
	case "confidentiality":
		f.Status, f.Remedy = statusFail, "boot with lockdown=integrity: in confidentiality no program may read Linux's memory"
	}
	return []finding{f}
}

// checkPrograms asks Linux itself: what it loads it also runs.
func checkPrograms() finding {
	f := finding{Check: "BPF programs", Status: statusOK, Found: "loaded and verified"}
	tap, err := bpf.Load(os.Getpagesize(), os.Getpagesize(), bpf.HaveMulti(), bpf.Filter{})
	if err != nil {
		f.Status, f.Found, f.Remedy = statusFail, err.Error(), "see the rows above"
		return f
	}
	tap.Close()
	f.Found += ", attached by "
	if bpf.HaveMulti() {
		f.Found += "one link per program (uprobe_multi)"
	} else {
		f.Found += "one perf event per symbol (no uprobe_multi before Linux 6.6)"
	}
	return f
}

// checkReturnProbes tries one on a confined child.
func checkReturnProbes() finding {
	if err := preflight.ReturnProbes(); err != nil {
		return finding{Check: "return probes", Status: statusFail, Found: err.Error(), Remedy: preflight.ReturnProbeRemedy}
	}
	return finding{Check: "return probes", Status: statusOK, Found: "safe for programs that seccomp confines"}
}

func checkLibraries(named []string) []finding {
	libraries, err := library.OnHost(named)
	if err != nil {
		return []finding{{Check: "library", Status: statusFail, Found: err.Error(), Remedy: "correct the path given with --library"}}
	}
	if len(libraries) == 0 {
		return []finding{{
			Check: "library", Status: statusWarn, Found: "no libcuda.so.1 on this host",
			Remedy: "install the NVIDIA driver, or name the file with --library; copies in containers are found when a process maps them",
		}}
	}
	var rows []finding
	for _, path := range libraries {
		rows = append(rows, checkLibrary(path))
	}
	return rows
}

func checkLibrary(path string) finding {
	f := finding{Check: "library", Status: statusOK}
	l, err := library.Inspect(path)
	if err != nil {
		return finding{Check: "library", Status: statusFail, Found: err.Error(), Remedy: "is this the CUDA driver library?"}
	}
	f.Found = fmt.Sprintf("%s: %d functions to probe, %d single-stepped, %d absent", path, l.Attached, l.Stepped, len(l.Absent))
	if l.Stepped > 0 {
		f.Status = statusWarn
		f.Remedy = "calls of the single-stepped ones cost about ten times as much: leave out features that you do not need"
	}
	return f
}

// checkNATS looks for a server that answers.
func checkNATS(servers string) (f finding) {
	if servers == "" {
		return finding{Check: "NATS", Status: statusOK, Found: "not asked for: gputap run brings its own"}
	}
	if err := (config.NATS{URL: servers}).Validate(); err != nil {
		return finding{Check: "NATS", Status: statusFail, Found: err.Error(), Remedy: "correct --nats.url"}
	}
	for server := range strings.SplitSeq(servers, ",") {
		if f = checkServer(strings.TrimSpace(server)); f.Status == statusOK {
			break
		}
	}
	return f
}

func checkServer(address string) finding {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return finding{Check: "NATS", Status: statusFail, Found: "no address in --nats.url", Remedy: "write it as nats://host:4222"}
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "4222")
	}
	conn, err := net.DialTimeout("tcp", host, 3*time.Second)
	if err != nil {
		return finding{Check: "NATS", Status: statusFail, Found: err.Error(), Remedy: "start nats-server with JetStream, or correct --nats.url"}
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "INFO" {
		return finding{Check: "NATS", Status: statusFail, Found: host + " does not speak NATS" + reason(err), Remedy: "correct --nats.url"}
	}
	return finding{Check: "NATS", Status: statusOK, Found: host + " answers"}
}

func reason(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return ""
	}
	return ": " + err.Error()
}
