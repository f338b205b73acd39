package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

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

// killsConfined reports whether the return probes of a kernel release kill confined programs.
func killsConfined(release string) bool { return strings.HasPrefix(release, "6.11.") }

// checksOf returns the checks of a kernel release.
func checksOf(release string) []check {
	if killsConfined(release) {
		return []check{
			{3, "bin/gputap doctor " + stub, nil},
			{0, watch + "-- bin/workload confined", nil},
			{crash, watch + "--unsafe-return-probes -- bin/workload confined", nil},
			{0, watch + "--unsafe-return-probes -- bin/workload leak3", four},
			{6, watch + "--features memory -- bin/workload leak3", nil},
		}
	}
	list := []check{
		{0, "bin/gputap doctor " + stub, nil},
		{0, "producer/producer.test -test.v -test.run ^(TestCopies|TestLaunches|TestMemory|TestConfined|TestRows)$",
			nil},
		{0, "bin/gputap demo --scenario leak3", nil},
		{0, "bin/gputap demo --scenario procs4", nil},
		{0, "bin/gputap demo --scenario expandable", nil},
		{0, watch + "-- bin/workload leak3", append(four, unix.CAP_SYS_ADMIN)},
	}
	switch { // since July 2025 perf events need CAP_SYS_ADMIN
	case strings.HasPrefix(release, "5.15.0-25"):
		list = append(list, check{0, watch + "-- bin/workload leak3", four})
	case strings.HasPrefix(release, "6.1.0"):
		list = append(list, check{6, watch + "-- bin/workload leak3", four})
	}
	return list
}

// initMain is the init process: it mounts file systems, runs the checks, and turns the machine off.
func initMain() {
	var failed []string
	if err := guest.Mount(); err != nil {
		failed = append(failed, err.Error())
	}
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	release := string(text)
	if err == nil && !killsConfined(release) { // Ubuntu's default, 4, requires CAP_SYS_ADMIN for perf events
		err = os.WriteFile("/proc/sys/kernel/perf_event_paranoid", []byte("2"), 0)
	}
	if err != nil {
		failed = append(failed, err.Error())
	}
	for _, c := range checksOf(release) {
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
	return cmd.ProcessState.ExitCode()
}
