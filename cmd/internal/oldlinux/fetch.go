package main

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

// image is the path of the kernel's image, fetched and unpacked into the cache once.
func (l linux) image(cache string) (string, error) {
	if l.debian == "" && !strings.HasSuffix(l.url, ".deb") {
		return l.url, nil
	}
	dir := filepath.Join(cache, filepath.Base(l.name))
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
	return "", fmt.Errorf("no boot/vmlinuz in %s", deb)
}

func imageIn(dir string) string {
	found, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// fetch brings the package into dir and returns its path.
func (l linux) fetch(dir string) (string, error) {
	if l.debian != "" {
		return fromApt(dir, l.debian)
	}
	deb := filepath.Join(dir, filepath.Base(l.url))
	if !strings.HasPrefix(l.url, "https://") {
		return filepath.Abs(l.url)
	}
	response, err := http.Get(l.url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", l.url, response.Status)
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
	if got := hex.EncodeToString(sum.Sum(nil)); got != l.sha256 {
		return "", fmt.Errorf("%s has the sha256 %s, want %s", l.url, got, l.sha256)
	}
	return deb, nil
}

// fromApt downloads the newest package of a pattern; apt verifies it.
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
		return "", fmt.Errorf("apt knows no %s: apt-get update on Debian 12, or name a kernel image", pattern)
	}
	slices.SortFunc(names, func(a, b string) int { return version(b) - version(a) })
	if err := run(dir, "apt-get", "download", names[0]); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(dir, names[0]+"_*.deb"))
	if err != nil || len(debs) == 0 {
		return "", fmt.Errorf("apt-get download %s left no file", names[0])
	}
	return debs[0], nil
}

// version is the number behind 6.1.0-.
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
