package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/pipeline"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/cmd/internal/stub"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/anomaly"
)

const (
	// settleTime bounds how long events may take to reach the folds. It is long because it is used up only when a
	// check fails.
	settleTime = 30 * time.Second
	settlePoll = 10 * time.Millisecond
)

// stage is one run of the workload under a pipeline.
type stage struct {
	Options
	truths string // directory in which the stub writes its totals
	pipe   *pipeline.Pipeline
	checks checks

	images []stub.Image     // the stub's totals, as of now
	now    *report.Snapshot // of the processes of these images

	workload *exec.Cmd
	stdin    io.WriteCloser
	steps    *bufio.Scanner
	printed  strings.Builder // lines of the workload's standard output that are no steps
	stderr   bytes.Buffer
}

// attach starts a pipeline that watches the stub library.
func (s *stage) attach(ctx context.Context) (err error) {
	cfg := config.DefaultRunCommand()
	cfg.Metrics.Addr = ""
	cfg.Producer.Libraries = []string{filepath.Join(s.Dir, "stub", "libcuda.so.1")}
	if s.pipe, err = pipeline.New(ctx, cfg, "", s.Log); err != nil {
		s.pipe = nil
		return err
	}
	s.pipe.Start()
	return nil
}

// launch starts the workload, which waits at each of its steps until proceed.
func (s *stage) launch(ctx context.Context, pt part) (err error) {
	s.workload = exec.CommandContext(ctx, filepath.Join(s.Dir, "workload"), pt.workload, "--steps")
	if pt.timed {
		s.workload.Args = append(s.workload.Args, "--seconds", strconv.Itoa(s.StormSeconds))
	}
	s.workload.Env = append(os.Environ(), "GPUTAP_STUB_TRUTH="+s.truths)
	s.workload.Stderr = &s.stderr
	if s.stdin, err = s.workload.StdinPipe(); err != nil {
		return err
	}
	stdout, err := s.workload.StdoutPipe()
	if err != nil {
		return err
	}
	s.steps = bufio.NewScanner(stdout)
	if err := s.workload.Start(); err != nil {
		return fmt.Errorf("start the workload: %w", err)
	}
	return nil
}

// step returns when the workload waits at the named step.
func (s *stage) step(name string) error {
	for s.steps.Scan() {
		step, ok := strings.CutPrefix(s.steps.Text(), "step ")
		if !ok {
			s.printed.WriteString(s.steps.Text() + "\n")
			continue
		}
		if step == name {
			return nil
		}
		if err := s.proceed(); err != nil {
			return err
		}
	}
	return fmt.Errorf("wait for step %s: the workload ended before it: %s", name, s.stderr.String())
}

func (s *stage) proceed() error {
	_, err := io.WriteString(s.stdin, "\n")
	return err
}

// finish lets the workload run to its end. killed means that SIGKILL is the correct end.
func (s *stage) finish(killed bool) error {
	_ = s.stdin.Close()
	for s.steps.Scan() {
		s.printed.WriteString(s.steps.Text() + "\n")
	}
	err := s.workload.Wait()
	var exit *exec.ExitError
	if killed && errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("run the workload: %w: %s", err, s.stderr.String())
	}
	return nil
}

// settle repeats a comparison until all figures are correct or the time is up, and keeps the last figures: events may
// not have reached the folds yet.
func (s *stage) settle(within time.Duration, compare func(*stage) checks) error {
	for deadline := time.Now().Add(within); ; time.Sleep(settlePoll) {
		if err := s.look(); err != nil {
			return err
		}
		if list := compare(s); list.ok() || time.Now().After(deadline) {
			s.checks = append(s.checks, list...)
			return nil
		}
	}
}

// look reads the totals of the stub and the state of gputap, without other programs that run on the same stub.
func (s *stage) look() (err error) {
	if s.images, err = stub.Images(s.truths); err != nil {
		return err
	}
	now := s.pipe.Snapshot()
	known := map[*report.Process]bool{}
	for i := range s.images {
		known[processOf(now, &s.images[i])] = true
	}
	now.Processes = slices.DeleteFunc(now.Processes, func(p *report.Process) bool { return !known[p] })
	now.Alerts = slices.DeleteFunc(now.Alerts, func(a anomaly.Alert) bool {
		return !slices.ContainsFunc(now.Processes, func(p *report.Process) bool { return p.PID == a.PID })
	})
	s.now = now
	return nil
}

// processOf returns the youngest process with the image's pid that began before the image was loaded, or nil.
func processOf(now *report.Snapshot, i *stub.Image) *report.Process {
	var best *report.Process
	for _, p := range now.Processes {
		if p.PID == i.PID && uint64(p.ID().Start) <= i.Loaded && (best == nil || p.ID().Start > best.ID().Start) {
			best = p
		}
	}
	return best
}
