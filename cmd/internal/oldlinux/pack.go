package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// archive writes a cpio archive in the format that Linux unpacks at boot (newc).
type archive struct {
	w    io.Writer
	n    int
	dirs map[string]bool
	err  error
}

// pack writes an initramfs of this program, gputap, the compiled tests and the fixtures. They lie as they
// do in the tree, below /gputap.
func pack(path string) error {
	tests := filepath.Join(filepath.Dir(path), "producer.test")
	build := exec.Command("go", "test", "-c", "-tags", "bpf", "-o", tests, "./producer")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("compile the tests: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{
		"init": self, "gputap/producer/producer.test": tests, "gputap/bin/gputap": "bin/gputap",
		"gputap/bin/workload": "bin/workload", "gputap/bin/stub/libcuda.so.1": "bin/stub/libcuda.so.1",
	}
	if err := libraries("bin/workload", files); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	zip := gzip.NewWriter(f)
	a := &archive{w: zip, dirs: map[string]bool{}}
	for _, dir := range []string{"proc", "sys", "dev", "tmp"} {
		a.dir(dir)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		a.file(name, files[name])
	}
	a.entry("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	return zip.Close()
}

// libraries adds the loader and the libraries of a program.
func libraries(program string, files map[string]string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			if err != nil {
				return err
			}
			loader := string(bytes.TrimRight(name, "\x00"))
			files[strings.TrimPrefix(loader, "/")] = loader
		}
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", program, err)
	}
	for line := range strings.Lines(string(out)) {
		name, rest, found := strings.Cut(line, " => ")
		if path, _, _ := strings.Cut(rest, " ("); found && !strings.Contains(name, "libcuda") {
			files[strings.TrimPrefix(path, "/")] = path
		}
	}
	return nil
}

func (a *archive) dir(name string) {
	if name == "." || a.dirs[name] {
		return
	}
	a.dir(filepath.Dir(name))
	a.dirs[name] = true
	a.entry(name, 0o40755, nil)
}

func (a *archive) file(name, path string) {
	data, err := os.ReadFile(path)
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("%w (make build stub)", err)
	}
	a.dir(filepath.Dir(name))
	a.entry(name, 0o100755, data)
}

// entry writes one header, name and content; name and content end on multiples of four.
func (a *archive) entry(name string, mode int, data []byte) {
	a.n++
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(head), data} {
		part = append(part, make([]byte, (4-len(part)%4)%4)...)
		if _, err := a.w.Write(part); err != nil && a.err == nil {
			a.err = err
		}
	}
}
