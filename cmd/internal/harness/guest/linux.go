package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Linux is a kernel to boot: a package of this machine's Debian, or a file with a known checksum.
type Linux struct {
	Name   string
	Debian string // regular expression for the name of the package in apt
	URL    string // URL of a package, or path of a package or an image
	SHA256 string
}

// Debian12 is the kernel of Debian 12's virtual machines.
var Debian12 = Linux{Name: "6.1", Debian: "linux-image-6.1.0-[0-9]+-cloud-amd64$"}

// Image returns the path of the kernel image. It fetches and unpacks a package into the cache once.
func (l Linux) Image(cache string) (string, error) {
	if l.Debian == "" && !strings.HasSuffix(l.URL, ".deb") {
		return l.URL, nil
	}
	dir := filepath.Join(cache, filepath.Base(l.Name))
	if found := imageIn(dir); found != "" {
		return found, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	deb, err := l.fetch(dir)
	if err != nil {
		return "", fmt.Errorf("fetch: %w", err)
	}
	if err := run(dir, "dpkg", "-x", deb, "."); err != nil {
		return "", err
	}
	if found := imageIn(dir); found != "" {
		return found, nil
	}
	return "", fmt.Errorf("unpack %s: it has no boot/vmlinuz", deb)
}

func imageIn(dir string) string {
	found, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// Modules returns the paths of modules of a kernel that Image has unpacked, in the order of names.
func (l Linux) Modules(cache string, names []string) ([]string, error) {
	var paths []string
	for _, name := range names {
		found, _ := filepath.Glob(filepath.Join(cache, filepath.Base(l.Name), "lib/modules/*/kernel", name+".ko"))
		if len(found) != 1 {
			return nil, fmt.Errorf("find module %[3]s of Linux %[1]s: the package has %[2]d, want 1", l.Name,
				len(found), name)
		}
		paths = append(paths, found[0])
	}
	return paths, nil
}

// fetch downloads the package into dir and returns its path.
func (l Linux) fetch(dir string) (string, error) {
	if l.Debian != "" {
		return fromApt(dir, l.Debian)
	}
	deb := filepath.Join(dir, filepath.Base(l.URL))
	if !strings.HasPrefix(l.URL, "https://") {
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
	f, err := os.Create(deb)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), response.Body); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != l.SHA256 {
		return "", fmt.Errorf("verify %s: its SHA-256 is %s, want %s", l.URL, got, l.SHA256)
	}
	return deb, nil
}

// fromApt downloads the newest package that matches a pattern. apt verifies it.
func fromApt(dir, pattern string) (string, error) {
	out, err := exec.Command("apt-cache", "pkgnames", "linux-image-").Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache: %w", err)
	}
	wanted := regexp.MustCompile("^" + pattern)
	var names []string
	for _, name := range strings.Fields(string(out)) {
		if wanted.MatchString(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("find a package %s: apt has none; use Debian 12 with apt-get update, or another kernel",
			pattern)
	}
	slices.SortFunc(names, func(a, b string) int { return version(b) - version(a) })
	if err := run(dir, "apt-get", "download", names[0]); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(dir, names[0]+"_*.deb"))
	if err != nil || len(debs) == 0 {
		return "", fmt.Errorf("apt-get download %s: no file was downloaded", names[0])
	}
	return debs[0], nil
}

// version returns the number after "6.1.0-".
func version(name string) (n int) {
	_, rest, _ := strings.Cut(name, ".0-")
	_, _ = fmt.Sscanf(rest, "%d", &n)
	return n
}

func run(dir string, command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return nil
}
