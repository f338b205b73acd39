package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/pipeline"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/schema"
)

const (
	// settleTime bounds how long events may take to reach the folds. It is long because it is used up only when a
	// check fails.
	settleTime  = 30 * time.Second
	settlePoll  = 10 * time.Millisecond
	stepTimeout = 2 * time.Minute
)

// stage is one run of the workload under a pipeline.
type stage struct {
	dir     string // of workload and stub/libcuda.so.1
	seconds int    // duration of a storm
	truths  string // directory in which the stub writes its totals
	log     *slog.Logger
	pipe    *pipeline.Pipeline
	drained bool   // every event has reached the folds
	prefix  string // of the names of the checks
	checks  []Check

	workload *exec.Cmd
	stdin    io.WriteCloser
	steps    *bufio.Scanner
	printed  strings.Builder // lines of the workload's standard output that are no steps
	stderr   bytes.Buffer
}

// attach starts a pipeline that watches the stub library.
func (s *stage) attach(ctx context.Context) error {
	cfg := config.DefaultProducer()
	cfg.Features = []string{"memory", "launch", "copy", "sync"}
	cfg.Libraries = []string{filepath.Join(s.dir, "stub", "libcuda.so.1")}
	pipe, err := pipeline.New(ctx, config.RunCommand{Producer: cfg}, "", s.log)
	if err != nil {
		return err
	}
	s.pipe = pipe
	pipe.Start()
	return nil
}

// launch starts the workload, which waits at each of its steps until proceed.
func (s *stage) launch(ctx context.Context, args ...string) error {
	s.workload = exec.CommandContext(ctx, filepath.Join(s.dir, "workload"), append(args, "--steps")...)
	s.workload.Env = append(os.Environ(), "GPUTAP_STUB_TRUTH="+s.truths)
	s.workload.Stderr = &s.stderr
	var err error
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
	timer := time.AfterFunc(stepTimeout, func() { _ = s.workload.Process.Kill() })
	defer timer.Stop()
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
	timeout := stepTimeout + time.Duration(s.seconds)*time.Second
	timer := time.AfterFunc(timeout, func() { _ = s.workload.Process.Kill() })
	defer timer.Stop()
	for s.steps.Scan() {
		s.printed.WriteString(s.steps.Text() + "\n")
	}
	err := s.workload.Wait()
	var exit *exec.ExitError
	if killed && errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("run the workload: %w: %s", err, s.stderr.String())
	}
	return nil
}

// settle repeats the checks until all hold or the time is up, and keeps the last values: at a step, events may not have
// reached the folds yet. After drain it checks once.
func (s *stage) settle(checks func() ([]Check, error)) error {
	deadline := time.Now().Add(settleTime)
	for {
		list, err := checks()
		if err != nil {
			return err
		}
		if allOK(list) || time.Now().After(deadline) || s.drained {
			s.keep(list)
			return nil
		}
		time.Sleep(settlePoll)
	}
}

func (s *stage) keep(checks []Check) {
	for _, c := range checks {
		c.What = s.prefix + c.What
		s.checks = append(s.checks, c)
	}
}

// live checks live memory of every process that the stub knows.
func (s *stage) live(step string) error {
	return s.settle(func() ([]Check, error) {
		images, err := readTruth(s.truths)
		if err != nil {
			return nil, err
		}
		now := s.snapshot(images)
		var checks []Check
		for i := range images {
			t := &images[i]
			if !t.current(images) {
				continue // exec replaced this image; the totals at the end include it
			}
			p := processOf(now, t)
			if p == nil {
				p = &pipeline.Process{}
			}
			who := fmt.Sprintf("%s: process %d ", step, i+1)
			checks = append(checks, Check{What: who + "live bytes", Expected: t.liveBytes, Observed: p.LiveBytes},
				Check{What: who + "live allocations", Expected: t.liveAllocations, Observed: p.LiveAllocations})
			checks = append(checks, details(who, t, p)...)
		}
		return checks, nil
	})
}

// snapshot returns the state of gputap for these images, without other programs that run on the same stub.
func (s *stage) snapshot(images []truth) *pipeline.Snapshot {
	now := s.pipe.Snapshot()
	known := map[*pipeline.Process]bool{}
	for i := range images {
		if p := processOf(now, &images[i]); p != nil {
			known[p] = true
		}
	}
	now.Processes = slices.DeleteFunc(now.Processes, func(p *pipeline.Process) bool { return !known[p] })
	now.Alerts = slices.DeleteFunc(now.Alerts, func(a anomaly.Alert) bool {
		return !slices.ContainsFunc(now.Processes, func(p *pipeline.Process) bool { return p.PID == a.PID })
	})
	return now
}

// current reports whether no later image runs under the same process.
func (t *truth) current(images []truth) bool {
	for i := range images {
		if images[i].pid == t.pid && images[i].loaded > t.loaded {
			return false
		}
	}
	return true
}

// processOf returns the youngest process with the image's pid that began before the image was loaded, or nil.
func processOf(now *pipeline.Snapshot, t *truth) *pipeline.Process {
	var best *pipeline.Process
	for _, p := range now.Processes {
		if p.PID == t.pid && uint64(p.ID().Start) <= t.loaded && (best == nil || p.ID().Start > best.ID().Start) {
			best = p
		}
	}
	return best
}

// probed reports whether gputap counts calls of a symbol. The stub exports more symbols than that.
func probed(symbol string) bool {
	for i := range schema.Calls {
		if c := &schema.Calls[i]; c.Symbol == symbol && c.Kind != schema.KindNone {
			return true
		}
	}
	return false
}
