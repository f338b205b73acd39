package guest

import (
	"context"
	"os/exec"
	"time"
)

// Qemu is a machine of two CPUs that boots a kernel and an initramfs, and has no devices but those of args.
func Qemu(ctx context.Context, accel, image, initramfs, cmdline string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-accel", accel, "-cpu", "max", "-smp", "2", "-m", "1536", "-nodefaults", "-display", "none",
		"-kernel", image, "-initrd", initramfs, "-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off rdinit=/init " + cmdline,
	}, args...)...)
}

// probeLimit is several times what a boot takes on KVM.
const probeLimit = 15 * time.Second

// Accel is kvm where a kernel really boots with it, tcg elsewhere: inside some virtual machines /dev/kvm is there and the guest
// never gets anywhere. The kernel boots without any program: it ends in a panic, which ends qemu.
func Accel(ctx context.Context, image string) string {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "kvm", "-cpu", "max", "-m", "256", "-nodefaults", "-display", "none",
		"-no-reboot", "-kernel", image, "-append", "panic=-1").Run() == nil {
		return "kvm"
	}
	return "tcg"
}
