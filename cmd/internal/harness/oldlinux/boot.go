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

// verdict is the prefix of the line in which the guest reports its result.
const verdict = "oldlinux-verdict "

// bootLimit is far longer than a boot and the checks, even if qemu emulates every instruction.
const bootLimit = 30 * time.Minute

// boot runs a kernel in qemu and prints the guest's console. It returns the guest's verdict.
func boot(ctx context.Context, image, initramfs string) error {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	qemu := guest.Qemu(ctx, "tcg", image, initramfs, "", "-no-reboot", "-serial", "stdio")
	console, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	if err := qemu.Start(); err != nil {
		return fmt.Errorf("%w (apt-get install qemu-system-x86)", err)
	}
	var result string
	for lines := bufio.NewScanner(console); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		if _, rest, ok := strings.Cut(line, verdict); ok {
			result = rest
			continue
		}
		fmt.Println("   ", line)
	}
	if err := qemu.Wait(); err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	switch result {
	case "ok":
		return nil
	case "":
		return errors.New("the guest ended without a verdict")
	}
	return errors.New(result)
}
