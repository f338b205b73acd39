package producer

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// LibrariesOf are the driver libraries that a command would find before the host's own: in
// LD_LIBRARY_PATH, and in the search path that is written into the program. It lets a command be
// seen from its first call where the host's library is not the one it maps.
func LibrariesOf(command string) []string {
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

// searchPath is a program's DT_RUNPATH or DT_RPATH; nothing for scripts.
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
		values, err := file.DynString(tag)
		if err != nil {
			continue
		}
		for _, v := range values {
			dirs = append(dirs, filepath.SplitList(origin.Replace(v))...)
		}
	}
	return dirs
}
