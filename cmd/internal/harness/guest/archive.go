package guest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Pack writes an initramfs with this program as its init process, bin/workload and the stub driver below /gputap, the
// libraries of bin/workload, and files: paths in the guest, without the first slash, and on this machine. All files are
// executable.
func Pack(path string, files map[string]string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files = maps.Clone(files)
	files["init"] = self
	for _, name := range []string{"bin/workload", "bin/stub/libcuda.so.1"} {
		files["gputap/"+name] = name
	}
	libraries, err := exec.Command("ldd", "bin/workload").Output()
	if err != nil {
		return fmt.Errorf("ldd bin/workload: %w (run make stub)", err)
	}
	for _, library := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		if !strings.Contains(library, "libcuda") {
			files[strings.TrimPrefix(library, "/")] = library
		}
	}
	a := archive{dirs: map[string]bool{".": true}}
	for _, dir := range []string{"proc", "sys", "dev", "tmp"} {
		a.dir(dir)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[name])
		if err != nil {
			return fmt.Errorf("%w (run make build stub)", err)
		}
		a.dir(filepath.Dir(name))
		a.entry(name, 0o100755, data)
	}
	a.entry("TRAILER!!!", 0, nil)
	return os.WriteFile(path, a.Bytes(), 0o644)
}

// archive is a cpio archive in the newc format, which Linux unpacks at boot. u-root's pkg/cpio writes it too, but the
// header below is one line, and that package would bring three more modules.
type archive struct {
	bytes.Buffer
	entries int
	dirs    map[string]bool
}

func (a *archive) dir(name string) {
	if !a.dirs[name] {
		a.dir(filepath.Dir(name))
		a.dirs[name] = true
		a.entry(name, 0o40755, nil)
	}
}

// entry writes header, name and content. Header with name, and content, are padded to multiples of four bytes.
func (a *archive) entry(name string, mode int, data []byte) {
	a.entries++
	fmt.Fprintf(a, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.entries, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() { a.Write(make([]byte, (4-a.Len()%4)%4)) }
