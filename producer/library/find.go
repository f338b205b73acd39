package library

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wellKnown lists places of the driver library that a host's ldconfig cache may miss.
var wellKnown = []string{
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
}

// OnHost returns the driver libraries of this host, each file once: those that the user named, then those of the
// ldconfig cache, then those in well-known places. It fails when a library that the user named does not exist.
func OnHost(named []string) ([]string, error) {
	var found []string
	seen := map[Inode]bool{}
	add := func(path string) error {
		id, err := inodeAt(path)
		if err != nil {
			return err
		}
		if !seen[id] {
			seen[id] = true
			found = append(found, path)
		}
		return nil
	}
	for _, path := range named {
		if err := add(path); err != nil {
			return nil, fmt.Errorf("library %s: %w", path, err)
		}
	}
	cached, err := ldCache("/etc/ld.so.cache", "libcuda.so.1")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, path := range append(cached, wellKnown...) {
		_ = add(path) // a stale entry
	}
	return found, nil
}

// ForCommand returns the driver libraries that a command would find before the host's own: in LD_LIBRARY_PATH, and in
// the search path that is written into the program.
func ForCommand(command string) []string {
	dirs := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	if path, err := exec.LookPath(command); err == nil {
		dirs = append(dirs, searchPath(path)...)
	}
	var found []string
	for _, dir := range dirs {
		path := filepath.Join(dir, "libcuda.so.1")
		if info, err := os.Stat(path); dir != "" && err == nil && info.Mode().IsRegular() {
			found = append(found, path)
		}
	}
	return found
}

// searchPath returns the directories of a program's DT_RPATH and DT_RUNPATH; none for a script.
func searchPath(program string) []string {
	file, err := elf.Open(program)
	if err != nil {
		return nil
	}
	defer file.Close()
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil
	}
	origin := strings.NewReplacer("$ORIGIN", filepath.Dir(real), "${ORIGIN}", filepath.Dir(real))
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, _ := file.DynString(tag) // a static program has none
		for _, v := range values {
			dirs = append(dirs, filepath.SplitList(origin.Replace(v))...)
		}
	}
	return dirs
}
