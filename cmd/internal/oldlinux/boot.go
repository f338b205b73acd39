package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// verdict begins the line by which the guest says how it went.
const verdict = "oldlinux-verdict "

// bootLimit is far more than a boot and the checks take where qemu emulates every instruction.
const bootLimit = 30 * time.Minute

// boot runs a kernel in qemu and passes on what the guest prints. Its verdict decides.
func boot(image, initramfs string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1536",
		"-nographic", "-no-reboot", "-nic", "none", "-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off rdinit=/init")
	console, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	if err := qemu.Start(); err != nil {
		return fmt.Errorf("%w (apt-get install qemu-system-x86)", err)
	}
	var said string
	for lines := bufio.NewScanner(console); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		if _, rest, ok := strings.Cut(line, verdict); ok {
			said = rest
			continue
		}
		fmt.Println("   ", line)
	}
	if err := qemu.Wait(); err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	switch said {
	case "ok":
		return nil
	case "":
		return errors.New("the guest ended without a verdict")
	}
	return errors.New(said)
}
