package preflight

import (
	"debug/elf"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gputap/gputap/bpf"
)

// ErrReturnProbes says that a return probe kills programs which seccomp confines, as it does containers by default.
// On x86-64 Linux 6.11 and newer, a function with a return probe makes the system call uretprobe, which older seccomp
// filters do not allow. Linux 6.12.14, 6.13.3 and 6.14 exempt that call from filters.
var ErrReturnProbes = errors.New("return probes kill programs that seccomp confines")

// ReturnProbeRemedy says what to do about ErrReturnProbes.
const ReturnProbeRemedy = "update to Linux 6.12.14, 6.13.3, 6.14 or newer; " +
	"where no confined program uses CUDA set --unsafe-return-probes"

// errKilled says that a signal ended the confined child.
var errKilled = errors.New("a signal ended the confined child")

// ReturnProbes tries a return probe on a confined child, once per process. It returns nil when return probes are safe.
var ReturnProbes = sync.OnceValue(func() error {
	if !LinuxAtLeast(6, 11) || probedAddress() == 0 {
		return nil
	}
	err := probeConfinedChild()
	switch {
	case errors.Is(err, errKilled):
		return fmt.Errorf("%w on Linux %s: %w", ErrReturnProbes, bpf.Release(), err)
	case err == nil, LinuxAtLeast(6, 14):
		return nil
	}
	return fmt.Errorf("%w: cannot exclude it on Linux %s: %w", ErrReturnProbes, bpf.Release(), err)
})

// probeConfinedChild attaches a return probe to the function probed of this program, and lets a child call it under a
// seccomp filter. It succeeds only if the child survives and the probe was hit. The probe is on all processes that run
// this file; they call that function only here.
func probeConfinedChild() error {
	offset, err := fileOffset("/proc/self/exe", probedAddress())
	if err != nil {
		return err
	}
	count, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "preflight", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	if err != nil {
		return fmt.Errorf("create a counter: %w", err)
	}
	defer count.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "preflight", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, count.FD(), 0), asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, 0), asm.Return(),
		},
		AttachType: ebpf.AttachTraceUprobeMulti, // x86-64 has both since 6.11
	})
	if err != nil {
		return fmt.Errorf("load a return probe: %w", err)
	}
	defer program.Close()
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	probe, err := self.UretprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{offset}})
	if err != nil {
		return fmt.Errorf("attach a return probe: %w", err)
	}
	defer probe.Close()
	if err := runConfinedChild(); err != nil {
		return err
	}
	var calls uint64
	if err := count.Lookup(uint32(0), &calls); err != nil {
		return fmt.Errorf("read the counter: %w", err)
	}
	if calls == 0 {
		return errors.New("the return probe was not hit")
	}
	return nil
}

// fileOffset returns where in its file an executable has an address.
func fileOffset(path string, address uint64) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if f.Type != elf.ET_EXEC {
		return 0, fmt.Errorf("%s is %s: its addresses are not those of its file", path, f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr <= address && address < p.Vaddr+p.Filesz {
			return address - p.Vaddr + p.Off, nil
		}
	}
	return 0, fmt.Errorf("%s has nothing at %#x", path, address)
}

// LinuxAtLeast compares with the running Linux. A release that cannot be parsed counts as new.
func LinuxAtLeast(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(bpf.Release(), "%d.%d", &a, &b); err != nil {
		return true
	}
	return a > major || a == major && b >= minor
}
