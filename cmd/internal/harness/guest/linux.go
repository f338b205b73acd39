package guest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Cache is the directory for kernels and archives.
const Cache = "bin/oldlinux"

// Linux is a kernel to boot.
type Linux struct {
	Name   string
	URL    string // of a package, or path of an image; empty: the kernel of Debian 12's virtual machines
	SHA256 string // of a package
}

// Debian12 is the kernel of Debian 12's virtual machines.
var Debian12 = Linux{Name: "6.1"}

// Image returns the path of the kernel image. It fetches and unpacks a package into Cache once.
func (l Linux) Image() (string, error) {
	if l.URL != "" && l.SHA256 == "" {
		return l.URL, nil
	}
	const image = "boot/vmlinuz-*"
	if path, err := l.file(image); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(l.dir(), 0o755); err != nil {
		return "", err
	}
	if err := l.fetch(); err != nil {
		return "", fmt.Errorf("fetch Linux %s: %w", l.Name, err)
	}
	deb, err := l.file("*.deb")
	if err != nil {
		return "", err
	}
	if _, err := l.output("dpkg", "-x", filepath.Base(deb), "."); err != nil {
		return "", err
	}
	return l.file(image)
}

// Module returns the path of a module of a kernel that Image has unpacked.
func (l Linux) Module(name string) (string, error) {
	return l.file("lib/modules/*/kernel/" + name + ".ko")
}

func (l Linux) dir() string { return filepath.Join(Cache, filepath.Base(l.Name)) }

// file returns the only file of the package that matches a pattern.
func (l Linux) file(pattern string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(l.dir(), pattern))
	if len(found) != 1 {
		return "", fmt.Errorf("the package of Linux %s has %d files %s, want 1", l.Name, len(found), pattern)
	}
	return found[0], nil
}

// fetch downloads the package: of Debian 12 with apt, which verifies it.
func (l Linux) fetch() error {
	if l.URL == "" {
		text, err := l.output("apt-cache", "depends", "linux-image-cloud-amd64")
		if err != nil {
			return err
		}
		name := regexp.MustCompile(`linux-image-6\.1\.\S+`).FindString(text)
		if name == "" {
			return errors.New("apt has no kernel 6.1 for virtual machines: use Debian 12, and apt-get update")
		}
		_, err = l.output("apt-get", "download", name)
		return err
	}
	response, err := http.Get(l.URL)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", l.URL, response.Status)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != l.SHA256 {
		return fmt.Errorf("verify %s: its SHA-256 is %s, want %s", l.URL, sum, l.SHA256)
	}
	return os.WriteFile(filepath.Join(l.dir(), "linux.deb"), data, 0o644)
}

// output runs a command in the directory of the package.
func (l Linux) output(command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = l.dir(), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return string(out), nil
}

// Qemu returns the command of a machine with two CPUs that boots a kernel and an initramfs, and prints its console.
// qemu emulates each instruction: in some virtual machines /dev/kvm exists, but a guest hangs. args add devices.
func Qemu(image, initramfs, cmdline string, args ...string) []string {
	return append([]string{
		"qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1536", "-nodefaults",
		"-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off rdinit=/init " + cmdline,
	}, args...)
}
