package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

// check is a command and its expected exit status. With capabilities it runs with only these, and not as root.
type check struct {
	status       int
	command      string
	capabilities []uintptr
}

// four are all capabilities that gputap needs if Linux lets CAP_PERFMON open perf events on functions.
var four = []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}

const (
	stub   = "--library bin/stub/libcuda.so.1"
	watch  = "bin/gputap run --metrics-addr= " + stub + " "
	nobody = 65534
	crash  = 128 + int(syscall.SIGSEGV)
)

var checks = []check{
	{0, "bin/gputap doctor " + stub, nil},
	{0, "producer/producer.test -test.v -test.run ^(TestCopies|TestLaunches|TestMemory|TestConfined|TestRows)$", nil},
	{0, "bin/gputap demo --scenario leak3", nil},
	{0, "bin/gputap demo --scenario procs4", nil},
	{0, "bin/gputap demo --scenario expandable", nil},
	{0, watch + "-- bin/workload leak3", append(four, unix.CAP_SYS_ADMIN)},
}

// more are checks that depend on the kernel: since July 2025 perf events need CAP_SYS_ADMIN.
var more = map[string]check{
	"5.15.0-25": {0, watch + "-- bin/workload leak3", four},
	"6.1.0":     {6, watch + "-- bin/workload leak3", four},
}

// unsafe are the checks for a Linux whose return probes kill confined programs.
var unsafe = []check{
	{3, "bin/gputap doctor " + stub, nil},
	{0, watch + "-- bin/workload confined", nil},
	{crash, watch + "--unsafe-return-probes -- bin/workload confined", nil},
	{0, watch + "--unsafe-return-probes -- bin/workload leak3", four},
	{6, watch + "--features memory -- bin/workload leak3", nil},
}

// initMain is the init process: it mounts file systems, runs the checks, and turns the machine off.
func initMain() {
	var failed []string
	if err := guest.Mount(); err != nil {
		failed = append(failed, err.Error())
	}
	list := checks
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	if strings.HasPrefix(string(release), "6.11.") {
		list = unsafe
	} else if err := os.WriteFile("/proc/sys/kernel/perf_event_paranoid", []byte("2"), 0); err != nil {
		failed = append(failed, err.Error()) // Ubuntu's default, 4, requires CAP_SYS_ADMIN for perf events
	}
	for prefix, c := range more {
		if strings.HasPrefix(string(release), prefix) {
			list = append(list, c)
		}
	}
	for _, c := range list {
		if status := c.run(); status != c.status {
			failed = append(failed, fmt.Sprintf("%s: exit status %d, want %d", c.command, status, c.status))
		}
	}
	if len(failed) == 0 {
		failed = []string{"ok"}
	}
	fmt.Printf("\n%s%s\n", verdict, strings.Join(failed, "; "))
	guest.PowerOff()
}

func (c check) run() int {
	fmt.Println("$", c.command)
	began := time.Now()
	words := strings.Fields(c.command)
	cmd := exec.Command("/gputap/"+words[0], words[1:]...)
	cmd.Dir = "/gputap"
	if strings.HasPrefix(words[0], "producer/") {
		cmd.Dir = "/gputap/producer"
	}
	cmd.Env = []string{"HOME=/tmp", "PATH=/gputap/bin", "GPUTAP_REQUIRE_BPF=1"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if c.capabilities != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: c.capabilities,
		}
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Println(err)
		return -1
	}
	fmt.Printf("  exit status %d after %.1f s\n", cmd.ProcessState.ExitCode(), time.Since(began).Seconds())
	return cmd.ProcessState.ExitCode()
}
