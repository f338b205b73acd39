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
	release      string // prefix of the kernel releases; empty: all but confinedKilled
	status       int
	command      string
	capabilities []uintptr
}

// confinedKilled is the prefix of kernel releases whose return probes kill confined programs.
const confinedKilled = "6.11."

// four are all capabilities that gputap needs if Linux lets CAP_PERFMON open perf events on functions.
var four = []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}

const (
	stub   = "--library bin/stub/libcuda.so.1"
	watch  = "bin/gputap run --metrics-addr= " + stub + " "
	nobody = 65534
	crash  = 128 + int(syscall.SIGSEGV)
)

var checks = []check{
	{confinedKilled, 3, "bin/gputap doctor " + stub, nil},
	{confinedKilled, 0, watch + "-- bin/workload confined", nil},
	{confinedKilled, crash, watch + "--unsafe-return-probes -- bin/workload confined", nil},
	{confinedKilled, 0, watch + "--unsafe-return-probes -- bin/workload leak3", four},
	{confinedKilled, 6, watch + "--features memory -- bin/workload leak3", nil},

	{"", 0, "bin/gputap doctor " + stub, nil},
	{"", 0, "producer/producer.test -test.v -test.run ^Test(Copies|Launches|Memory|Confined|Rows)$", nil},
	{"", 0, "bin/gputap demo --scenario leak3", nil},
	{"", 0, "bin/gputap demo --scenario procs4", nil},
	{"", 0, "bin/gputap demo --scenario expandable", nil},
	{"", 0, watch + "-- bin/workload leak3", append(four, unix.CAP_SYS_ADMIN)},
	{"5.15.0-25", 0, watch + "-- bin/workload leak3", four},
	{"6.1.0", 6, watch + "-- bin/workload leak3", four}, // since July 2025 perf events need CAP_SYS_ADMIN
}

func (c check) appliesTo(release string) bool {
	return strings.HasPrefix(release, c.release) && (c.release != "" || !strings.HasPrefix(release, confinedKilled))
}

// initMain is the init process: it mounts file systems, runs the checks, and turns the machine off.
func initMain() {
	var failed []string
	if err := guest.Mount(); err != nil {
		failed = append(failed, err.Error())
	}
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	release := string(text)
	// Ubuntu's default, 4, requires CAP_SYS_ADMIN for perf events. gputap needs them where it may not use
	// uprobe_multi.
	if err == nil && !strings.HasPrefix(release, confinedKilled) {
		err = os.WriteFile("/proc/sys/kernel/perf_event_paranoid", []byte("2"), 0)
	}
	if err != nil {
		failed = append(failed, err.Error())
	}
	for _, c := range checks {
		if !c.appliesTo(release) {
			continue
		}
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
