package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Linux is a kernel to boot: a package with a known checksum, or a file.
type Linux struct {
	Name   string
	URL    string // of a package, or path of an image or a package; empty: the kernel of Debian 12's virtual machines
	SHA256 string
}

// Debian12 is the kernel of Debian 12's virtual machines.
var Debian12 = Linux{Name: "6.1"}

// Image returns the path of the kernel image. It fetches and unpacks a package into Cache once.
func (l Linux) Image() (string, error) {
	if l.URL != "" && !strings.HasSuffix(l.URL, ".deb") {
		return l.URL, nil
	}
	if image, err := l.unpacked("boot/vmlinuz-*"); err == nil {
		return image, nil
	}
	if err := os.MkdirAll(l.dir(), 0o755); err != nil {
		return "", err
	}
	deb, err := l.fetch()
	if err != nil {
		return "", fmt.Errorf("fetch Linux %s: %w", l.Name, err)
	}
	if _, err := l.output("dpkg", "-x", deb, "."); err != nil {
		return "", err
	}
	return l.unpacked("boot/vmlinuz-*")
}

// Modules returns the paths of modules of a kernel that Image has unpacked, in the order of names.
func (l Linux) Modules(names []string) (paths []string, err error) {
	for _, name := range names {
		path, err := l.unpacked("lib/modules/*/kernel/" + name + ".ko")
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func (l Linux) dir() string { return filepath.Join(Cache, filepath.Base(l.Name)) }

// unpacked returns the only file of the package that matches a pattern.
func (l Linux) unpacked(pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(l.dir(), pattern))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("the package of Linux %s has %d files %s, want 1", l.Name, len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// fetch returns the absolute path of the package.
func (l Linux) fetch() (string, error) {
	switch {
	case l.URL == "":
		return l.fromApt()
	case !strings.HasPrefix(l.URL, "https://"):
		return filepath.Abs(l.URL)
	}
	response, err := http.Get(l.URL)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", l.URL, response.Status)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != l.SHA256 {
		return "", fmt.Errorf("verify %s: its SHA-256 is %x, want %s", l.URL, sum, l.SHA256)
	}
	deb, err := filepath.Abs(filepath.Join(l.dir(), filepath.Base(l.URL)))
	if err != nil {
		return "", err
	}
	return deb, os.WriteFile(deb, data, 0o644)
}

// fromApt downloads the newest kernel of Debian 12's virtual machines. apt verifies it.
func (l Linux) fromApt() (string, error) {
	text, err := l.output("apt-cache", "depends", "linux-image-cloud-amd64")
	if err != nil {
		return "", err
	}
	name := regexp.MustCompile(`linux-image-6\.1\.\S+`).FindString(text)
	if name == "" {
		return "", errors.New("apt has no kernel 6.1 for virtual machines: use Debian 12, and apt-get update")
	}
	if _, err := l.output("apt-get", "download", name); err != nil {
		return "", err
	}
	deb, err := l.unpacked(name + "_*.deb")
	if err != nil {
		return "", err
	}
	return filepath.Abs(deb)
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

// Qemu returns the command of a machine with two CPUs that boots a kernel and an initramfs. qemu emulates each
// instruction: in some virtual machines /dev/kvm exists, but a guest hangs. args add devices.
func Qemu(ctx context.Context, image, initramfs, cmdline string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1536", "-nodefaults", "-display", "none", "-no-reboot",
		"-kernel", image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off rdinit=/init " + cmdline,
	}, args...)...)
}
