// Command oldlinux boots distribution kernels in qemu and runs gputap's own checks there. Without arguments it boots
// the kernels listed below. An argument is the path of another kernel image.
//
// This program is also the init process of the guest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

const ubuntu = "https://archive.ubuntu.com/ubuntu/pool/main/l/"

var known = []guest.Linux{
	guest.Debian12,
	{
		Name: "5.15", URL: ubuntu + "linux-signed/linux-image-5.15.0-25-generic_5.15.0-25.25_amd64.deb",
		SHA256: "ad56f8c442a54d4f5ff2dff010d00321d53e32b543f3a92f3ba4e042d20a71da",
	},
	{
		Name: "6.11", URL: ubuntu +
			"linux-signed-hwe-6.11/linux-image-6.11.0-17-generic_6.11.0-17.17~24.04.2_amd64.deb",
		SHA256: "2dbbc260ef488df0e43e34e478308bfdb1e5f87cb3fc7ebf55620326974bb77f",
	},
}

func main() {
	if os.Getpid() == 1 {
		initMain()
		return
	}
	list := known
	if paths := os.Args[1:]; len(paths) > 0 {
		list = nil
		for _, path := range paths {
			list = append(list, guest.Linux{Name: path, URL: path})
		}
	}
	cluster.Main("oldlinux", func(ctx context.Context) error { return bootAll(ctx, list) })
}

// bootAll boots each kernel in turn. It returns an error if one of them fails.
func bootAll(ctx context.Context, list []guest.Linux) error {
	initramfs, err := pack(ctx)
	if err != nil {
		return fmt.Errorf("create the initramfs: %w", err)
	}
	var failed []error
	for _, l := range list {
		fmt.Printf("==> Linux %s\n", l.Name)
		if err := boot(ctx, l, initramfs); err != nil {
			failed = append(failed, fmt.Errorf("on Linux %s: %w", l.Name, err))
			continue
		}
		fmt.Printf("==> Linux %s: ok\n", l.Name)
	}
	return errors.Join(failed...)
}

// pack writes an initramfs with gputap and compiled tests. Below /gputap the files have the same paths as in the tree.
func pack(ctx context.Context) (string, error) {
	tests := filepath.Join(guest.Cache, "producer.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "bpf", "-o", tests, "./producer")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("compile the tests: %w", err)
	}
	initramfs := filepath.Join(guest.Cache, "initramfs")
	return initramfs, guest.Pack(initramfs, map[string]string{
		"gputap/producer/producer.test": tests, "gputap/bin/gputap": "bin/gputap",
	})
}

// verdict is the prefix of the line in which the guest reports its result.
const verdict = "oldlinux-verdict "

// bootLimit is far longer than a boot and the checks, although qemu emulates every instruction.
const bootLimit = 30 * time.Minute

// boot runs a kernel in qemu and prints the guest's console. The guest's verdict is an error, unless it is ok.
func boot(ctx context.Context, l guest.Linux, initramfs string) error {
	image, err := l.Image()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	args := guest.Qemu(image, initramfs, "")
	qemu := exec.CommandContext(ctx, args[0], args[1:]...)
	var console strings.Builder
	qemu.Stdout = io.MultiWriter(os.Stdout, &console)
	if err := qemu.Run(); err != nil {
		return fmt.Errorf("qemu: %w (apt-get install qemu-system-x86)", err)
	}
	_, result, ended := strings.Cut(console.String(), verdict)
	if !ended {
		return errors.New("the guest ended without a verdict")
	}
	if result, _, _ = strings.Cut(result, "\r"); result != "ok" {
		return errors.New(result)
	}
	return nil
}
