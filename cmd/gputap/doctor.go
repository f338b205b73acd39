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

// finding is the result of one check.
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
		Short: "Check this host for all that gputap needs, with a remedy for each failure",
		Long: `Check Linux, BTF, capabilities, driver libraries and NATS. With --pid, check one running process instead: which
driver functions it has, which of them gputap sees, and which it cannot see.

Exit status: 0 gputap works here; 2 wrong flags; 3 a check failed.`,
		Example: `  sudo gputap doctor
  sudo gputap doctor -o json
  gputap doctor --nats.url nats://bus:4222
  sudo gputap doctor --pid 4242 --for 10s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if forTime <= 0 {
				return app.Usage(fmt.Errorf("--for %s: use more than 0", forTime))
			}
			if cmd.Flags().Changed("pid") {
				return concludeChecks(p.Stdout, output, auditProcess(cmd.Context(), pid, forTime, libraries))
			}
			if err := config.CheckVariables(); err != nil {
				return app.Usage(err)
			}
			servers := cmp.Or(natsURL, os.Getenv("GPUTAP_NATS__URL"))
			return concludeChecks(p.Stdout, output, checkHost(servers, libraries))
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&natsURL, "nats.url", "",
		"NATS servers to check, separated by commas [$GPUTAP_NATS__URL] (default: none, because gputap run contains "+
			"one)")
	cmd.Flags().StringArrayVar(&libraries, "library", nil,
		"driver library to check in addition to those that are found (repeatable)")
	cmd.Flags().Uint32Var(&pid, "pid", 0, "check this process instead")
	cmd.Flags().DurationVar(&forTime, "for", 2*time.Second, "with --pid: how long to watch the process")
	return cmd
}

func checkHost(servers string, libraries []string) []finding {
	rows := []finding{checkKernel(), checkBTF(), checkCapabilities(), checkPrograms(), checkReturnProbes()}
	rows = append(rows, checkLockdown()...)
	rows = append(rows, checkLibraries(libraries)...)
	return append(rows, checkNATS(servers))
}

// concludeChecks writes the rows. It returns an error if one of them failed.
func concludeChecks(out io.Writer, output string, rows []finding) error {
	failed := uint64(0)
	for _, r := range rows {
		if r.Status == statusFail {
			failed++
		}
	}
	if output == "json" {
		if err := json.NewEncoder(out).Encode(map[string]any{"ok": failed == 0, "checks": rows}); err != nil {
			return fmt.Errorf("write the checks: %w", err)
		}
	} else {
		writeFindings(out, rows)
	}
	if failed > 0 {
		return app.Findings(fmt.Errorf("%s failed", app.Plural(failed, "check", "checks")))
	}
	return nil
}

func writeFindings(out io.Writer, rows []finding) {
	for _, r := range rows {
		fmt.Fprintf(out, "%-5s %-14s %s\n", r.Status, r.Check, r.Found)
		if r.Remedy != "" {
			fmt.Fprintf(out, "%-5s %-14s → %s\n", "", "", r.Remedy)
		}
	}
}

func checkKernel() finding {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	f := finding{Check: "Linux", Status: statusOK, Found: strings.TrimSpace(string(release)) + " " + runtime.GOARCH}
	var major, minor int
	if _, scan := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil || scan != nil {
		f.Status, f.Remedy = statusWarn, "check that /proc is mounted and that Linux is 5.15 or newer"
	} else if major < 5 || major == 5 && minor < 15 {
		f.Status, f.Remedy = statusFail, "update to Linux 5.15 or newer, because older versions have no attach cookies"
	}
	return f
}

func checkBTF() finding {
	const path = "/sys/kernel/btf/vmlinux"
	f := finding{Check: "BTF", Status: statusOK, Found: path}
	if _, err := os.Stat(path); err != nil {
		f.Status, f.Found = statusFail, err.Error()
		f.Remedy = "boot a Linux built with CONFIG_DEBUG_INFO_BTF=y; in a container mount /sys"
	}
	return f
}

func checkCapabilities() finding {
	f := finding{Check: "capabilities", Status: statusOK}
	missing, err := preflight.Missing()
	if err != nil {
		return finding{Check: f.Check, Status: statusWarn, Found: err.Error(),
			Remedy: "allow this program to call capget"}
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

// checkLockdown returns no row if lockdown is off.
func checkLockdown() []finding {
	f := finding{Check: "lockdown", Status: statusOK, Found: preflight.Lockdown()}
	switch f.Found {
	case "", "none":
		return nil
	case "confidentiality":
		f.Status, f.Remedy = statusFail,
			"boot with lockdown=integrity, because confidentiality forbids BPF programs to read memory of Linux"
	}
	return []finding{f}
}

// checkPrograms loads the BPF programs, which Linux verifies.
func checkPrograms() finding {
	f := finding{Check: "BPF programs", Status: statusOK, Found: "loaded and verified"}
	tap, err := bpf.Load(bpf.MinRingBytes, bpf.HaveMulti(), bpf.Filter{})
	if err != nil {
		f.Status, f.Found, f.Remedy = statusFail, err.Error(), "correct the failures above"
		return f
	}
	tap.Close()
	f.Found += ", attached by "
	if bpf.HaveMulti() {
		f.Found += "one link for each program (uprobe_multi)"
	} else {
		f.Found += "one perf event for each symbol (uprobe_multi needs Linux 6.6)"
	}
	return f
}

// checkReturnProbes tries a return probe on a child under seccomp.
func checkReturnProbes() finding {
	if err := preflight.ReturnProbes(); err != nil {
		return finding{Check: "return probes", Status: statusFail, Found: err.Error(),
			Remedy: preflight.ReturnProbeRemedy}
	}
	return finding{Check: "return probes", Status: statusOK, Found: "safe for programs under seccomp"}
}

func checkLibraries(named []string) []finding {
	libraries, err := library.OnHost(named)
	if err != nil {
		return []finding{{Check: "library", Status: statusFail, Found: err.Error(),
			Remedy: "correct the path given with --library"}}
	}
	if len(libraries) == 0 {
		return []finding{{
			Check: "library", Status: statusWarn, Found: "no libcuda.so.1 on this host",
			Remedy: "install the NVIDIA driver, or set --library; gputap finds a library in a container when a " +
				"process maps it",
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
		return finding{Check: "library", Status: statusFail, Found: err.Error(),
			Remedy: "check that the file is a CUDA driver library"}
	}
	f.Found = fmt.Sprintf("%s: %d functions to probe, %d single-stepped, %d absent", path, l.Attached, l.Stepped,
		len(l.Absent))
	if l.Stepped > 0 {
		f.Status = statusWarn
		f.Remedy = "a single-stepped call costs about ten times as much; remove features that you do not need"
	}
	return f
}

// checkNATS succeeds if one of the servers answers.
func checkNATS(servers string) (f finding) {
	if servers == "" {
		return finding{Check: "NATS", Status: statusOK, Found: "not checked, because gputap run contains a server"}
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
		return finding{Check: "NATS", Status: statusFail, Found: "--nats.url has no host",
			Remedy: "use nats://host:4222"}
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "4222")
	}
	conn, err := net.DialTimeout("tcp", host, 3*time.Second)
	if err != nil {
		return finding{Check: "NATS", Status: statusFail, Found: err.Error(),
			Remedy: "start nats-server with JetStream, or correct --nats.url"}
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "INFO" {
		return finding{Check: "NATS", Status: statusFail, Found: host + " is not a NATS server" + reason(err),
			Remedy: "correct --nats.url"}
	}
	return finding{Check: "NATS", Status: statusOK, Found: host + " answers"}
}

func reason(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return ""
	}
	return ": " + err.Error()
}
