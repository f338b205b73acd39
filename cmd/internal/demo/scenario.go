package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/pipeline"
)

// Scenario is one known program, or several, with the results that gputap must show.
type Scenario struct {
	Name    string
	Summary string
	parts   []part
}

// part is one run of the workload. Without hooks it compares live memory at each step, and all totals at the end.
type part struct {
	workload     string
	steps        []step
	late         bool                                                    // the pipeline starts at the first step
	killed       bool                                                    // the workload ends by SIGKILL
	keepPipeline bool                                                    // the next part runs under the same pipeline
	args         func(s *stage) []string                                 // additional arguments of the workload
	end          func(s *stage, now *pipeline.Snapshot) []Check          // in addition to the totals
	totals       func(s *stage, now *pipeline.Snapshot) ([]Check, error) // instead of the totals
}

// step is an instant at which the workload waits. bytes and allocations are the figures of the listing, summed over all
// processes. With 0 allocations only the stub's figures are compared.
type step struct {
	name        string
	bytes       uint64
	allocations uint64
	unchecked   bool
	holders     []holder
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Options of a run.
type Options struct {
	Dir          string // directory of workload and stub/libcuda.so.1
	StormSeconds int
	Log          *slog.Logger // warnings and errors only
}

// Play runs the scenario. An error of the run is in the result.
func (sc *Scenario) Play(ctx context.Context, o Options) Result {
	start := time.Now()
	r := Result{
		Name: sc.Name, OK: true, Expected: map[string]any{}, Observed: map[string]any{}, Lost: map[string]uint64{},
	}
	var failures []error
	var pipe *pipeline.Pipeline
	for _, pt := range sc.parts {
		s := &stage{dir: o.Dir, seconds: o.StormSeconds, log: warnings(o.Log), pipe: pipe}
		if len(sc.parts) > 1 {
			s.prefix = strings.TrimPrefix(pt.workload, sc.Name+"-") + ": "
		}
		lost, err := s.play(ctx, pt)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s%w", s.prefix, err))
		}
		r.add(s.checks)
		if pipe = nil; pt.keepPipeline {
			pipe = s.pipe
			continue
		}
		for cause, n := range lost {
			r.Lost[cause] += n
		}
	}
	if err := errors.Join(failures...); err != nil {
		r.OK, r.Error = false, err.Error()
	}
	r.Took = time.Since(start)
	return r
}

func (r *Result) add(checks []Check) {
	for _, c := range checks {
		r.Checks = append(r.Checks, c)
		r.Expected[c.What], r.Observed[c.What] = c.Expected, c.Observed
		r.OK = r.OK && c.OK()
	}
}

// warnings returns a logger that drops everything below a warning.
func warnings(log *slog.Logger) *slog.Logger {
	return slog.New(levelHandler{log.Handler()})
}

type levelHandler struct{ slog.Handler }

func (h levelHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (s *stage) play(ctx context.Context, pt part) (lost map[string]uint64, err error) {
	if s.truths, err = os.MkdirTemp("", "gputap-truth-"); err != nil {
		return nil, fmt.Errorf("create a directory for the stub's totals: %w", err)
	}
	defer os.RemoveAll(s.truths)
	defer func() {
		if s.pipe != nil && (err != nil || !pt.keepPipeline) {
			s.pipe.Close()
			s.pipe = nil
		}
	}()
	if !pt.late && s.pipe == nil {
		if err := s.attach(ctx); err != nil {
			return nil, err
		}
	}
	args := []string{pt.workload}
	if pt.args != nil {
		args = append(args, pt.args(s)...)
	}
	if err := s.launch(ctx, args...); err != nil {
		return nil, err
	}
	if err := s.walk(ctx, pt); err != nil {
		return nil, err
	}
	if err := s.finish(pt.killed); err != nil {
		return nil, err
	}
	if !pt.keepPipeline {
		if err := s.pipe.Drain(); err != nil {
			return nil, err
		}
		s.drained = true
	}
	return s.conclude(pt)
}

// walk leads the workload through the steps of a part.
func (s *stage) walk(ctx context.Context, pt part) error {
	for i, st := range pt.steps {
		if err := s.step(st.name); err != nil {
			return err
		}
		if pt.late && i == 0 {
			if err := s.attach(ctx); err != nil {
				return err
			}
		}
		if err := s.compare(st); err != nil {
			return err
		}
		if err := s.proceed(); err != nil {
			return err
		}
	}
	return nil
}

// compare checks live memory at one step.
func (s *stage) compare(st step) error {
	if st.unchecked {
		return nil
	}
	if err := s.live(st.name); err != nil {
		return err
	}
	images, err := readTruth(s.truths)
	if err != nil {
		return err
	}
	now := s.snapshot(images)
	s.keep(holders(st.name, st.holders, images, now))
	if st.allocations == 0 {
		return nil
	}
	var bytes, allocations uint64
	for _, p := range now.Processes {
		bytes += p.LiveBytes
		allocations += p.LiveAllocations
	}
	s.keep([]Check{
		{What: st.name + ": live bytes in the listing", Expected: st.bytes, Observed: bytes},
		{What: st.name + ": live allocations in the listing", Expected: st.allocations, Observed: allocations},
	})
	return nil
}

func (s *stage) conclude(pt part) (lost map[string]uint64, err error) {
	images, err := readTruth(s.truths)
	if err != nil {
		return nil, err
	}
	now := s.snapshot(images)
	totals := s.totals
	if pt.totals != nil {
		totals = func(now *pipeline.Snapshot) ([]Check, error) { return pt.totals(s, now) }
	}
	err = s.settle(func() ([]Check, error) {
		now = s.snapshot(images)
		return totals(now)
	})
	if err != nil {
		return nil, err
	}
	if len(now.Processes) == 0 {
		return nil, errors.New("gputap saw no process of the workload")
	}
	if pt.end != nil {
		s.keep(pt.end(s, now))
	}
	return now.Lost, nil
}

func secondsArg(s *stage) []string { return []string{"--seconds", strconv.Itoa(s.seconds)} }
