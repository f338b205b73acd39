package main

import (
	"cmp"
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
	"github.com/gputap/gputap/schema"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "fail"
)

func pass(check, found string) finding         { return finding{check, statusOK, found, ""} }
func warn(check, found, remedy string) finding { return finding{check, statusWarn, found, remedy} }
func fail(check, found, remedy string) finding { return finding{check, statusFail, found, remedy} }

func doctorCommand(p *app.Process) *cobra.Command {
	var natsURL string
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
	}
	out := addOutput(cmd, "table")
	cmd.Flags().StringVar(&natsURL, "nats.url", "",
		"NATS servers to check, separated by commas [$GPUTAP_NATS__URL] (default: none, because gputap run contains "+
			"one)")
	cmd.Flags().StringArrayVar(&libraries, "library", nil,
		"driver library to check in addition to those that are found (repeatable)")
	cmd.Flags().Uint32Var(&pid, "pid", 0, "check this process instead")
	cmd.Flags().DurationVar(&forTime, "for", 2*time.Second, "with --pid: how long to watch the process")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if forTime <= 0 {
			return app.Usage(fmt.Errorf("--for %s: use more than 0", forTime))
		}
		if cmd.Flags().Changed("pid") {
			return concludeChecks(p.Stdout, out, auditProcess(cmd.Context(), pid, forTime, libraries))
		}
		if err := config.CheckVariables(); err != nil {
			return app.Usage(err)
		}
		servers := cmp.Or(natsURL, os.Getenv("GPUTAP_NATS__URL"))
		return concludeChecks(p.Stdout, out, checkHost(servers, libraries))
	}
	return cmd
}

func checkHost(servers string, libraries []string) []finding {
	rows := []finding{checkKernel(), checkBTF(), checkCapabilities(), checkPrograms(), checkReturnProbes()}
	rows = append(rows, checkLockdown()...)
	rows = append(rows, checkLibraries(libraries)...)
	rows = append(rows, checkTorch(torchLibraries())...)
	return append(rows, checkNATS(servers))
}

// concludeChecks writes the rows. It returns an error if one of them failed.
func concludeChecks(to io.Writer, out *output, rows []finding) error {
	failed := uint64(0)
	for _, r := range rows {
		if r.Status == statusFail {
			failed++
		}
	}
	err := out.write(to, map[string]any{"ok": failed == 0, "checks": rows}, func(w io.Writer) {
		for _, r := range rows {
			writeLine(w, "%-5s %-14s %s", r.Status, r.Check, r.Found)
			if r.Remedy != "" {
				writeLine(w, "%-5s %-14s → %s", "", "", r.Remedy)
			}
		}
	})
	if failed > 0 {
		return app.Findings(fmt.Errorf("%s failed", app.Plural(failed, "check", "checks")))
	}
	return err
}

func checkKernel() finding {
	found := bpf.Release() + " " + runtime.GOARCH
	if !preflight.LinuxAtLeast(5, 15) {
		return fail("Linux", found, "update to Linux 5.15 or newer, because older versions have no attach cookies")
	}
	return pass("Linux", found)
}

func checkBTF() finding {
	const path = "/sys/kernel/btf/vmlinux"
	if _, err := os.Stat(path); err != nil {
		return fail("BTF", err.Error(), "boot a Linux built with CONFIG_DEBUG_INFO_BTF=y; in a container mount /sys")
	}
	return pass("BTF", path)
}

func checkCapabilities() finding {
	const check = "capabilities"
	missing, err := preflight.Missing()
	lack := strings.Join(missing.Effects(), "; ")
	switch {
	case err != nil:
		return warn(check, err.Error(), "allow this program to call capget")
	case missing.Vital():
		return fail(check, lack, preflight.CapabilityRemedy)
	case len(missing) > 0:
		return warn(check, lack, preflight.CapabilityRemedy)
	}
	return pass(check, preflight.Used.Names())
}

// checkLockdown returns no row if lockdown is off.
func checkLockdown() []finding {
	switch mode := preflight.Lockdown(); mode {
	case "", "none":
		return nil
	case "confidentiality":
		return []finding{fail("lockdown", mode,
			"boot with lockdown=integrity, because confidentiality forbids BPF programs to read memory of Linux")}
	default:
		return []finding{pass("lockdown", mode)}
	}
}

// checkPrograms loads the BPF programs, which Linux verifies.
func checkPrograms() finding {
	const check = "BPF programs"
	tap, err := bpf.Load(bpf.MinRingBytes, true, bpf.HaveMulti(), bpf.Filter{})
	if err != nil {
		return fail(check, err.Error(), "correct the failures above")
	}
	tap.Close()
	if bpf.HaveMulti() {
		return pass(check, "loaded and verified, attached by one link for each program (uprobe_multi)")
	}
	return pass(check,
		"loaded and verified, attached by one perf event for each symbol (uprobe_multi needs Linux 6.6)")
}

// checkReturnProbes tries a return probe on a child under seccomp.
func checkReturnProbes() finding {
	if err := preflight.ReturnProbes(); err != nil {
		return fail("return probes", err.Error(), preflight.ReturnProbeRemedy)
	}
	return pass("return probes", "safe for programs under seccomp")
}

func checkLibraries(named []string) (rows []finding) {
	libraries, err := library.OnHost(named)
	if err != nil {
		return []finding{fail("library", err.Error(), "correct the path given with --library")}
	}
	if len(libraries) == 0 {
		return []finding{warn("library", "no libcuda.so.1 on this host",
			"install the NVIDIA driver, or set --library; gputap finds a library in a container when a process "+
				"maps it")}
	}
	for _, path := range libraries {
		rows = append(rows, checkLibrary(path))
	}
	return rows
}

func checkLibrary(path string) finding {
	l, _, err := library.Inspect(path)
	if err != nil {
		return fail("library", err.Error(), "check that the file is a CUDA driver library")
	}
	if library.Of(path) == schema.TorchLibrary {
		return torchFinding(&l)
	}
	found := fmt.Sprintf("%s: %d functions to probe, %d single-stepped, %d absent", path, l.Attached, l.Stepped,
		len(l.Absent))
	if l.Stepped > 0 {
		return warn("library", found,
			"a single-stepped call costs about ten times as much; remove features that you do not need")
	}
	return pass("library", found)
}

// checkNATS succeeds if one of the servers answers.
func checkNATS(servers string) (f finding) {
	if servers == "" {
		return pass("NATS", "not checked, because gputap run contains a server")
	}
	if err := (config.NATS{URL: servers}).Validate(); err != nil {
		return fail("NATS", err.Error(), "correct --nats.url")
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
		return fail("NATS", "--nats.url has no host", "use nats://host:4222")
	}
	host := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222"))
	conn, err := net.DialTimeout("tcp", host, 3*time.Second)
	if err != nil {
		return fail("NATS", err.Error(), "start nats-server with JetStream, or correct --nats.url")
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != "INFO" {
		found := host + " is not a NATS server"
		if err != nil && !errors.Is(err, io.EOF) {
			found += ": " + err.Error()
		}
		return fail("NATS", found, "correct --nats.url")
	}
	return pass("NATS", host+" answers")
}
