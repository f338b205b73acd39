package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

// verdict begins the line by which the guest says how it went.
const verdict = "oldlinux-verdict "

// bootLimit is far more than a boot and the checks take where qemu emulates every instruction.
const bootLimit = 30 * time.Minute

// boot runs a kernel in qemu and passes on what the guest prints. Its verdict decides.
func boot(image, initramfs string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	qemu := guest.Qemu(ctx, "tcg", image, initramfs, "", "-no-reboot", "-serial", "stdio")
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
