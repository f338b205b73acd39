package preflight

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/procfs"
)

// Capability is a right that gputap uses. With all four of Used it needs no root where Linux has uprobe_multi;
// kernel.unprivileged_bpf_disabled and kernel.perf_event_paranoid do not matter there.
type Capability struct {
	Name    string
	Without string // what fails without it
	Vital   bool   // nothing works without it
	bit     uint
	implied uint // a wider capability that includes it
}

// Capabilities is a list of capabilities.
type Capabilities []Capability

// Used lists all that gputap uses.
var Used = Capabilities{
	{"CAP_BPF", "Linux loads no BPF programs", true, unix.CAP_BPF, unix.CAP_SYS_ADMIN},
	{
		"CAP_PERFMON", "Linux attaches no BPF programs, and they cannot read memory",
		true, unix.CAP_PERFMON, unix.CAP_SYS_ADMIN,
	},
	{
		"CAP_SYS_PTRACE", "gputap cannot find libraries and program paths of other users' processes and containers",
		false, unix.CAP_SYS_PTRACE, unix.CAP_SYS_PTRACE,
	},
	{
		"CAP_DAC_READ_SEARCH", "gputap cannot attach to libraries in directories that this user may not read",
		false, unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_READ_SEARCH,
	},
}

// administrator is needed where Linux has no uprobe_multi: by releases since July 2025, and by older ones of Debian
// and Ubuntu with kernel.perf_event_paranoid above 2.
var administrator = Capability{
	"CAP_SYS_ADMIN", "most Linux versions below 6.6 attach nothing", false,
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_ADMIN,
}

// CapabilityRemedy says how to grant capabilities.
const CapabilityRemedy = "run as root, or give it to the service (AmbientCapabilities=) or container (cap_add)"

// Names returns the names of the capabilities, separated by spaces.
func (list Capabilities) Names() string {
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// Effects says of each capability what fails without it.
func (list Capabilities) Effects() (effects []string) {
	for _, c := range list {
		effects = append(effects, c.Name+" is missing: without it "+c.Without)
	}
	return effects
}

// Vital reports whether nothing works without one of the capabilities.
func (list Capabilities) Vital() bool {
	return slices.ContainsFunc(list, func(c Capability) bool { return c.Vital })
}

// Missing lists the capabilities that this process lacks.
func Missing() (missing Capabilities, err error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return nil, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	has := func(bit uint) bool { return sets[bit/32].Effective&(1<<(bit%32)) != 0 }
	for _, c := range Used {
		if !has(c.bit) && !has(c.implied) {
			missing = append(missing, c)
		}
	}
	if has(unix.CAP_BPF) && has(unix.CAP_PERFMON) && !has(unix.CAP_SYS_ADMIN) && !bpf.HaveMulti() {
		missing = append(missing, administrator)
	}
	return missing, nil
}

// CheckCapabilities returns an error when a vital capability is missing. For any other missing one it logs the effect.
func CheckCapabilities(log *slog.Logger) error {
	missing, err := Missing()
	if err != nil {
		return err
	}
	if missing.Vital() {
		return fmt.Errorf("%w: %s (%s)", os.ErrPermission, strings.Join(missing.Effects(), "; "), CapabilityRemedy)
	}
	for _, effect := range missing.Effects() {
		log.Warn(effect, "remedy", CapabilityRemedy)
	}
	return nil
}

// ExplainPermission adds the missing capabilities to a permission error. It returns any other error as it is.
func ExplainPermission(err error) error {
	missing, _ := Missing()
	if !errors.Is(err, os.ErrPermission) || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%w (missing %s: %s)", err, missing.Names(), CapabilityRemedy)
}

// Lockdown returns Linux's lockdown mode, "" where it has none. Mode "confidentiality" forbids BPF programs to read
// memory, so Linux loads none of gputap.
func Lockdown() string {
	modes, _ := procfs.ReadLine("/sys/kernel/security/lockdown")
	_, rest, _ := strings.Cut(modes, "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}
