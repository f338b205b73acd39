package producer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gputap/gputap/schema"
)

// ErrReturnProbes says that a return probe ends programs which are confined by seccomp, as containers
// are by default. On x86-64 Linux 6.11 and newer a function with a return probe makes the system call
// uretprobe, which no filter knew; only 6.12.14, 6.13.3 and 6.14 exempt it from filters.
var ErrReturnProbes = errors.New("return probes end programs that seccomp confines")

// ReturnProbes tries one, once, on a confined child of this program. nil: they are safe here.
var ReturnProbes = sync.OnceValue(tryReturnProbe)

// returnProbes is ReturnProbes, but in a test.
var returnProbes = ReturnProbes

// ReturnProbeRemedy is what to do about ErrReturnProbes.
const ReturnProbeRemedy = "update to Linux 6.12.14, 6.13.3, 6.14 or newer; where no confined program uses CUDA set --unsafe-return-probes"

// watched are the features that can be had. Where return probes are not safe only entries are probed:
// that leaves the launches, without GPUs, and with the names of kernels that can be read from memory.
func (p *Producer) watched() (features []schema.Kind, entriesOnly bool, err error) {
	features, err = p.cfg.Kinds()
	if err != nil || p.cfg.UnsafeReturns {
		return features, false, err
	}
	unsafe := returnProbes()
	if unsafe == nil {
		return features, false, nil
	}
	if !slices.Contains(features, schema.KindLaunch) {
		return nil, true, fmt.Errorf("%w: without them nothing is seen of %s (%s)", unsafe, strings.Join(p.cfg.Features, ", "), ReturnProbeRemedy)
	}
	p.log.Warn("only launches are watched, without GPUs", "err", unsafe, "remedy", ReturnProbeRemedy)
	return []schema.Kind{schema.KindLaunch}, true, nil
}

func tryReturnProbe() error {
	if !linuxAtLeast(6, 11) || probedAddress() == 0 {
		return nil
	}
	fired, err := confinedChild()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && signalled(exit):
		return fmt.Errorf("%w on Linux %s: a confined child was ended by it (%w)", ErrReturnProbes, linuxRelease(), err)
	case err == nil && fired, linuxAtLeast(6, 14):
		return nil
	}
	return fmt.Errorf("%w on Linux %s, as far as can be told: %w", ErrReturnProbes, linuxRelease(), err)
}

func signalled(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// confinedChild runs this program again as a child that calls a probed function under a filter. The
// probe is on all processes that run this file, which call that function only here.
func confinedChild() (fired bool, err error) {
	offset, err := fileOffset("/proc/self/exe", probedAddress())
	if err != nil {
		return false, err
	}
	count, err := ebpf.NewMap(&ebpf.MapSpec{Name: "preflight", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return false, fmt.Errorf("create a counter: %w", err)
	}
	defer count.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "preflight", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, count.FD(), 0), asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, 0), asm.Return(),
		},
		AttachType: ebpf.AttachTraceUprobeMulti, // x86 has had it for as long as the system call
	})
	if err != nil {
		return false, fmt.Errorf("load a return probe: %w", err)
	}
	defer program.Close()
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return false, err
	}
	probe, err := self.UretprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{offset}})
	if err != nil {
		return false, fmt.Errorf("attach a return probe: %w", err)
	}
	defer probe.Close()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), confinedEnv+"=1")
	if err := child.Run(); err != nil {
		return false, fmt.Errorf("confined child: %w", err)
	}
	var calls uint64
	if err := count.Lookup(uint32(0), &calls); err != nil {
		return false, fmt.Errorf("read the counter: %w", err)
	}
	if calls == 0 {
		return false, errors.New("the return probe was not hit")
	}
	return true, nil
}

// linuxAtLeast compares with the running Linux; one that cannot be told is new.
func linuxAtLeast(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(linuxRelease(), "%d.%d", &a, &b); err != nil {
		return true
	}
	return a > major || a == major && b >= minor
}

func linuxRelease() string {
	release, _ := readLine("/proc/sys/kernel/osrelease")
	return release
}
