package guest

import (
	"context"
	"os/exec"
	"time"
)

// Qemu returns the command of a machine with two CPUs that boots a kernel and an initramfs. args add its devices.
func Qemu(ctx context.Context, accel, image, initramfs, cmdline string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-accel", accel, "-cpu", "max", "-smp", "2", "-m", "1536", "-nodefaults", "-display", "none",
		"-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off rdinit=/init " + cmdline,
	}, args...)...)
}

// probeLimit is several times longer than a boot with KVM.
const probeLimit = 15 * time.Second

// Accel returns kvm if a kernel really boots with it, and tcg otherwise: in some virtual machines /dev/kvm exists, but
// the guest hangs. The kernel boots without an init program, so it panics, which ends qemu.
func Accel(ctx context.Context, image string) string {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "kvm", "-cpu", "max", "-m", "256", "-nodefaults",
		"-display", "none",
		"-no-reboot", "-kernel", image, "-append", "panic=-1").Run() == nil {
		return "kvm"
	}
	return "tcg"
}
