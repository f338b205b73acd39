// Command oldlinux boots kernels of distributions in qemu and runs gputap's own checks there. Without
// arguments it takes those of the list below; an argument is the path of another kernel image or deb.
//
// It is also the first process of what it boots.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
		Name: "6.11", URL: ubuntu + "linux-signed-hwe-6.11/linux-image-6.11.0-17-generic_6.11.0-17.17~24.04.2_amd64.deb",
		SHA256: "2dbbc260ef488df0e43e34e478308bfdb1e5f87cb3fc7ebf55620326974bb77f",
	},
}

func main() {
	if os.Getpid() == 1 {
		first()
		return
	}
	if err := host(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oldlinux:", err)
		os.Exit(1)
	}
}

// host boots each kernel in turn and fails when one of them did.
func host(asked []string) error {
	list := known
	if len(asked) > 0 {
		list = nil
		for _, a := range asked {
			list = append(list, named(a))
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
		return fmt.Errorf("make the initramfs: %w", err)
	}
	var failed []string
	for _, l := range list {
		fmt.Printf("==> Linux %s\n", l.Name)
		image, err := l.Image(cache)
		if err == nil {
			err = boot(image, initramfs)
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

// named is a kernel of the list, or a file.
func named(arg string) guest.Linux {
	for _, l := range known {
		if l.Name == arg {
			return l
		}
	}
	return guest.Linux{Name: arg, URL: arg}
}
