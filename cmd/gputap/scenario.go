package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
)

// scenario is one known program, or a few, and what it must look like.
type scenario struct {
	name    string
	summary string
	parts   []part
}

// part is one run of the workload. The zero hooks mean: compare live memory at each step with the
// stub and with the figures of the listing, and everything at the end.
type part struct {
	workload string
	steps    []step
	late     bool                                           // the pipeline starts at the first step only
	killed   bool                                           // it ends by SIGKILL
	goesOn   bool                                           // the pipeline does: the next part runs under it too
	args     func(s *stage) []string                        // more arguments
	end      func(s *stage, now *snapshot) []check          // beyond the totals
	totals   func(s *stage, now *snapshot) ([]check, error) // instead of the totals
}

// step is an instant at which the workload waits. bytes and allocations are the listing's figures
// over all processes; 0 allocations: only the stub is compared.
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

func play(ctx context.Context, sc scenario, dir string, seconds int, log *slog.Logger) result {
	r := result{Name: sc.name, OK: true, Expected: map[string]any{}, Observed: map[string]any{}, Lost: map[string]uint64{}}
	var pipe *pipeline
	for _, pt := range sc.parts {
		s := &stage{dir: dir, seconds: seconds, log: quiet(log), pipe: pipe}
		if len(sc.parts) > 1 {
			s.prefix = strings.TrimPrefix(pt.workload, sc.name+"-") + ": "
		}
		lost, err := s.play(ctx, pt)
		if err != nil {
			r.OK = false
			r.Error = errors.Join(errors.New(r.Error), fmt.Errorf("%s%w", s.prefix, err)).Error()
		}
		for _, c := range s.rows {
			r.rows = append(r.rows, c)
			r.Expected[c.what], r.Observed[c.what] = c.expected, c.observed
			r.OK = r.OK && c.equal()
		}
		pipe = nil
		if pt.goesOn {
			pipe = s.pipe
			continue
		}
		for cause, n := range lost {
			r.Lost[cause] += n
		}
	}
	r.Error = strings.TrimSpace(r.Error)
	return r
}

// quiet keeps a pipeline's own news out of the demo: warnings still show.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(levelHandler{log.Handler()})
}

type levelHandler struct{ slog.Handler }

func (h levelHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

func (s *stage) play(ctx context.Context, pt part) (lost map[string]uint64, err error) {
	if s.truths, err = os.MkdirTemp("", "gputap-truth-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(s.truths)
	defer func() {
		if s.pipe != nil && !pt.goesOn {
			s.pipe.close()
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
	for i, st := range pt.steps {
		if err := s.step(st.name); err != nil {
			return nil, err
		}
		if pt.late && i == 0 {
			if err := s.attach(ctx); err != nil {
				return nil, err
			}
		}
		if err := s.compare(st); err != nil {
			return nil, err
		}
		if err := s.proceed(); err != nil {
			return nil, err
		}
	}
	if err := s.finish(pt.killed); err != nil {
		return nil, err
	}
	if !pt.goesOn {
		if err := s.pipe.drain(); err != nil {
			return nil, err
		}
		s.drained = true
	}
	return s.conclude(pt)
}

// compare looks at live memory at one step.
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
	s.keep([]check{
		{what: st.name + ": live bytes in the listing", expected: st.bytes, observed: bytes},
		{what: st.name + ": live allocations in the listing", expected: st.allocations, observed: allocations},
	})
	return nil
}

func (s *stage) conclude(pt part) (map[string]uint64, error) {
	images, err := readTruth(s.truths)
	if err != nil {
		return nil, err
	}
	now := s.snapshot(images)
	totals := s.totals
	if pt.totals != nil {
		totals = func(now *snapshot) ([]check, error) { return pt.totals(s, now) }
	}
	err = s.settle(func() ([]check, error) {
		now = s.snapshot(images)
		return totals(now)
	})
	if err != nil {
		return nil, err
	}
	if len(now.Processes) == 0 {
		return nil, errors.New("gputap saw nothing of the workload")
	}
	if pt.end != nil {
		s.keep(pt.end(s, now))
	}
	return now.Lost, nil
}

func secondsArg(s *stage) []string { return []string{"--seconds", strconv.Itoa(s.seconds)} }
