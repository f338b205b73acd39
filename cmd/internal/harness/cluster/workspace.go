package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Workspace is the directory of one run, which holds programs, stores and logs, and the run's progress log.
type Workspace struct {
	Dir   string
	Bin   string // directory of the programs
	began time.Time
	out   io.Writer
}

// NewWorkspace creates the directory below parent, or below the system's temporary directory if parent is empty. Say
// writes to out.
func NewWorkspace(parent, name string, out io.Writer) (*Workspace, error) {
	dir, err := os.MkdirTemp(parent, "gputap-"+name+"-")
	if err != nil {
		return nil, err
	}
	return &Workspace{Dir: dir, Bin: filepath.Join(dir, "bin"), began: time.Now(), out: out}, nil
}

// Say prints one line with the seconds since the run began.
func (w *Workspace) Say(format string, args ...any) {
	fmt.Fprintf(w.out, "%7.1fs  "+format+"\n", append([]any{time.Since(w.began).Seconds()}, args...)...)
}

// Program returns the path of a built program.
func (w *Workspace) Program(name string) string { return filepath.Join(w.Bin, name) }

// Path returns the path of a file of the workspace.
func (w *Workspace) Path(name string) string { return filepath.Join(w.Dir, name) }

// Close removes the workspace, or says where it is if it is to be kept.
func (w *Workspace) Close(keep bool) {
	if keep {
		fmt.Fprintln(w.out, "logs and stores are kept in", w.Dir)
		return
	}
	_ = os.RemoveAll(w.Dir)
}

// Build builds static programs of the source tree into dir.
func Build(ctx context.Context, tree, dir string, packages ...string) error {
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir, build.Stderr, build.Env = tree, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s of %s: %w", packages, tree, err)
	}
	return nil
}
