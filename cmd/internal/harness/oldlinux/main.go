// Command oldlinux boots distribution kernels in qemu and runs gputap's own checks there. Without arguments it boots
// the kernels listed below. An argument is the name of one of them, or the path of another kernel image or Debian
// package.
//
// This program is also the init process of the guest.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	cluster.Main("oldlinux", func(ctx context.Context) error { return bootAll(ctx, os.Args[1:]) })
}

// bootAll boots each kernel in turn. It returns an error if one of them fails.
func bootAll(ctx context.Context, asked []string) error {
	list := known
	if len(asked) > 0 {
		list = nil
		for _, a := range asked {
			list = append(list, kernel(a))
		}
	}
	cache, err := filepath.Abs("bin/oldlinux")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	initramfs := filepath.Join(cache, "initramfs")
	if err := pack(initramfs); err != nil {
		return fmt.Errorf("create the initramfs: %w", err)
	}
	var failed []string
	for _, l := range list {
		fmt.Printf("==> Linux %s\n", l.Name)
		image, err := l.Image(cache)
		if err == nil {
			err = boot(ctx, image, initramfs)
		}
		if err != nil {
			fmt.Printf("==> Linux %s: %v\n", l.Name, err)
			failed = append(failed, l.Name)
			continue
		}
		fmt.Printf("==> Linux %s: ok\n", l.Name)
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed on Linux %s", strings.Join(failed, ", "))
	}
	return nil
}

// kernel returns a kernel of the list, or a file.
func kernel(arg string) guest.Linux {
	for _, l := range known {
		if l.Name == arg {
			return l
		}
	}
	return guest.Linux{Name: arg, URL: arg}
}
