package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Workspace is one run of a harness program: the directory of its programs, stores and logs, its progress log, and its
// processes.
type Workspace struct {
	Dir      string
	Bin      string // directory of the programs
	began    time.Time
	out      io.Writer
	cleanups []func()
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

// Cleanup registers a function for Close, which calls the last one first.
func (w *Workspace) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }

// Start starts a process in the workspace. Close kills it.
func (w *Workspace) Start(p *Process) error {
	p.Dir = w.Dir
	w.Cleanup(p.Kill)
	return p.Start()
}

// Close ends the run. It removes the directory, or says where it is if it is to be kept.
func (w *Workspace) Close(keep bool) {
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
	if keep {
		fmt.Fprintln(w.out, "logs and stores are kept in", w.Dir)
		return
	}
	_ = os.RemoveAll(w.Dir)
}

// Build builds nats-server and the static programs of a source tree into dir.
func Build(ctx context.Context, tree, dir string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator),
		"github.com/nats-io/nats-server/v2", "./cmd/gputap...")
	build.Dir, build.Stderr, build.Env = tree, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the programs of %s: %w", tree, err)
	}
	return nil
}

// Main runs a harness program until it is done or receives SIGINT or SIGTERM, and exits with status 1 if it fails. A
// second signal kills the program.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
