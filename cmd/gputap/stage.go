package main

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
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/schema"
)

// check compares one figure. The expected value comes from the stub, from the workload or from the listing that the
// scenario reproduces; the observed value comes from gputap.
type check struct {
	what     string
	expected any // equal to observed, or bounds of a float64
	observed any
}

// bounds are the smallest and the largest correct value of a figure.
type bounds struct {
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

func (b bounds) String() string { return fmt.Sprintf("%.5g to %.5g", b.Least, b.Most) }

func (c check) equal() bool {
	if b, ok := c.expected.(bounds); ok {
		got, ok := c.observed.(float64)
		return ok && b.Least <= got && got <= b.Most
	}
	return c.expected == c.observed
}

func allEqual(checks []check) bool {
	for _, c := range checks {
		if !c.equal() {
			return false
		}
	}
	return true
}

const (
	settleTime  = 5 * time.Second // for what was done to reach the folds
	settlePoll  = 10 * time.Millisecond
	stepTimeout = 60 * time.Second
)

// stage is one run of the workload under one fresh pipeline.
type stage struct {
	dir     string // of the fixtures
	seconds int    // of a storm
	truths  string // where the stub writes its totals
	log     *slog.Logger
	pipe    *pipeline
	drained bool   // it has seen all there is to see
	prefix  string // of what the checks are called
	rows    []check

	workload *exec.Cmd
	stdin    io.WriteCloser
	steps    *bufio.Scanner
	printed  bytes.Buffer
	stderr   bytes.Buffer
}

// attach starts the pipeline on the stub.
func (s *stage) attach(ctx context.Context) error {
	cfg := config.DefaultProducer()
	cfg.Features = []string{"memory", "launch", "copy", "sync"}
	cfg.Libraries = []string{filepath.Join(s.dir, "stub", "libcuda.so.1")}
	pipe, err := newPipeline(ctx, config.RunCommand{Producer: cfg}, "", s.log)
	if err != nil {
		return privilege(err)
	}
	s.pipe = pipe
	pipe.start()
	return nil
}

// launch starts the workload; it stops at each of its steps until proceed.
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
		return fmt.Errorf("start workload: %w", err)
	}
	return nil
}

// step waits until the workload stands at the named step.
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
	return fmt.Errorf("workload ended before its step %s: %s", name, s.stderr.String())
}

func (s *stage) proceed() error {
	_, err := io.WriteString(s.stdin, "\n")
	return err
}

// finish lets the workload end; killed says that it ends by SIGKILL, as it should.
func (s *stage) finish(killed bool) error {
	_ = s.stdin.Close()
	timer := time.AfterFunc(stepTimeout+time.Duration(s.seconds)*time.Second, func() { _ = s.workload.Process.Kill() })
	defer timer.Stop()
	for s.steps.Scan() {
		s.printed.WriteString(s.steps.Text() + "\n")
	}
	err := s.workload.Wait()
	var exit *exec.ExitError
	if killed && errors.As(err, &exit) && exitStatus(exit) == 137 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("workload: %w: %s", err, s.stderr.String())
	}
	return nil
}

// settle evaluates the checks until all hold or time is up, and keeps the last values: at a step
// events are still on their way.
func (s *stage) settle(checks func() ([]check, error)) error {
	deadline := time.Now().Add(settleTime)
	for {
		rows, err := checks()
		if err != nil {
			return err
		}
		if allEqual(rows) || time.Now().After(deadline) || s.drained {
			s.keep(rows)
			return nil
		}
		time.Sleep(settlePoll)
	}
}

func (s *stage) keep(rows []check) {
	for _, r := range rows {
		r.what = s.prefix + r.what
		s.rows = append(s.rows, r)
	}
}

// live compares, for every process that the stub knows, what is live right now.
func (s *stage) live(step string) error {
	return s.settle(func() ([]check, error) {
		images, err := readTruth(s.truths)
		if err != nil {
			return nil, err
		}
		now := s.snapshot(images)
		var rows []check
		for i := range images {
			t := &images[i]
			var bytes, allocations uint64
			if p := processOf(now, t); p != nil {
				bytes, allocations = p.LiveBytes, p.LiveAllocations
			}
			if !t.current(images) {
				continue // its image is gone: what it held is counted at the end
			}
			who := fmt.Sprintf("%s: process %d ", step, i+1)
			rows = append(rows, check{what: who + "live bytes", expected: t.liveBytes, observed: bytes},
				check{what: who + "live allocations", expected: t.liveAllocations, observed: allocations})
			rows = append(rows, details(who, t, processOf(now, t))...)
		}
		return rows, nil
	})
}

// snapshot is what gputap knows of the images that the stub knows: other programs may run on the
// same stub meanwhile.
func (s *stage) snapshot(images []truth) *snapshot {
	now := s.pipe.snapshot()
	mine := map[*processJSON]bool{}
	for i := range images {
		if p := processOf(now, &images[i]); p != nil {
			mine[p] = true
		}
	}
	now.Processes = slices.DeleteFunc(now.Processes, func(p *processJSON) bool { return !mine[p] })
	now.Alerts = slices.DeleteFunc(now.Alerts, func(a anomaly.Alert) bool {
		return !slices.ContainsFunc(now.Processes, func(p *processJSON) bool { return p.PID == a.PID })
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

// processOf finds the process of an image: the youngest of its pid that began before the image.
func processOf(now *snapshot, t *truth) *processJSON {
	var best *processJSON
	for _, p := range now.Processes {
		if p.PID == t.pid && uint64(p.id.Start) <= t.loaded && (best == nil || p.id.Start > best.id.Start) {
			best = p
		}
	}
	return best
}

// probed reports whether gputap counts a symbol: the stub exports more than that.
func probed(symbol string) bool {
	for i := range schema.Calls {
		if c := &schema.Calls[i]; c.Symbol == symbol && c.Kind != schema.KindNone {
			return true
		}
	}
	return false
}
