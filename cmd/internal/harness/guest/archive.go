package guest

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

// archive writes a cpio archive in the newc format, which Linux unpacks at boot. u-root's pkg/cpio does it too, but the
// header below is one line, and the package would bring three more modules.
type archive struct {
	w    io.Writer
	n    int
	dirs map[string]bool
	err  error
}

// Pack writes an initramfs. files maps the path in the guest, without its first slash, to the path on this machine. All
// files are executable.
func Pack(path string, files map[string]string) error {
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

// Libraries adds the loader and the shared libraries of a program to files, without the CUDA driver.
func Libraries(program string, files map[string]string) error {
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
		a.err = fmt.Errorf("%w (run make build stub)", err)
	}
	a.dir(filepath.Dir(name))
	a.entry(name, 0o100755, data)
}

// entry writes header, name and content. Name and content are padded to multiples of four bytes.
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
