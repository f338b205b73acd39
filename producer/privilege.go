package producer

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
)

// Capability is a right that gputap uses. With all four it needs no root where Linux has uprobe_multi;
// neither kernel.unprivileged_bpf_disabled nor kernel.perf_event_paranoid matters there.
type Capability struct {
	Name    string
	Without string // what does not work then
	Vital   bool   // nothing works then
	bit     uint
	stands  uint // a wider capability that stands for it
}

// Capabilities are all that gputap uses.
var Capabilities = []Capability{
	{"CAP_BPF", "Linux loads no programs", true, unix.CAP_BPF, unix.CAP_SYS_ADMIN},
	{"CAP_PERFMON", "Linux attaches no programs and lets none read its memory", true, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN},
	{
		"CAP_SYS_PTRACE", "libraries of other users' processes and containers are not found, nor the paths of their programs",
		false, unix.CAP_SYS_PTRACE, unix.CAP_SYS_PTRACE,
	},
	{
		"CAP_DAC_READ_SEARCH", "libraries in directories that are closed to this user are not attached",
		false, unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_READ_SEARCH,
	},
}

// administrator is wanted where Linux has no uprobe_multi: by releases since July 2025, and by older ones of
// Debian and Ubuntu with kernel.perf_event_paranoid above 2.
var administrator = Capability{
	"CAP_SYS_ADMIN", "most Linux below 6.6 attaches nothing", false,
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_ADMIN,
}

// CapabilityRemedy says how capabilities are given.
const CapabilityRemedy = "run as root, or give it to the service (AmbientCapabilities=) or container (cap_add)"

// Missing are the capabilities that this process does not have.
func Missing() ([]Capability, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return nil, fmt.Errorf("ask for the capabilities of this process: %w", err)
	}
	has := func(bit uint) bool { return sets[bit/32].Effective&(1<<(bit%32)) != 0 }
	var missing []Capability
	for _, c := range Capabilities {
		if !has(c.bit) && !has(c.stands) {
			missing = append(missing, c)
		}
	}
	if has(unix.CAP_BPF) && has(unix.CAP_PERFMON) && !has(unix.CAP_SYS_ADMIN) && !bpf.HaveMulti() {
		missing = append(missing, administrator)
	}
	return missing, nil
}

// allowed is an error where a vital capability is missing; else it logs what is not seen for want of another.
func (p *Producer) allowed() error {
	missing, err := Missing()
	if err != nil {
		return err
	}
	var lack []string
	vital := false
	for _, c := range missing {
		lack = append(lack, c.Name+" is missing: without it "+c.Without)
		vital = vital || c.Vital
	}
	if vital {
		return fmt.Errorf("%w: %s (%s)", os.ErrPermission, strings.Join(lack, "; "), CapabilityRemedy)
	}
	for _, what := range lack {
		p.log.Warn(what, "remedy", CapabilityRemedy)
	}
	return nil
}

// unprivileged adds the capabilities that may be the reason to what Linux does not permit.
func unprivileged(err error) error {
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	var names []string
	missing, _ := Missing()
	for _, c := range missing {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w (missing %s: %s)", err, strings.Join(names, " "), CapabilityRemedy)
}

// Lockdown is Linux's lockdown mode, "" where it has none. In confidentiality no program may read Linux's
// memory, so none of gputap's is loaded.
func Lockdown() string {
	modes, _ := readLine("/sys/kernel/security/lockdown")
	_, rest, _ := strings.Cut(modes, "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}
