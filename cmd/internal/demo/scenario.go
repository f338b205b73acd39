package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
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
	late         bool                // at its first step only the pipeline starts
	killed       bool                // the workload ends by SIGKILL
	keepPipeline bool                // the next part runs under the same pipeline
	timed        bool                // the workload takes the duration of a storm
	end          func(*stage) checks // in addition to the totals
	totals       func(*stage) checks // instead of stage.totals
}

// step is an instant at which the workload waits. bytes and allocations are the figures of the listing, summed over all
// processes. With 0 allocations only the stub's figures are compared.
type step struct {
	name        string
	bytes       uint64
	allocations uint64
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
	Log          *slog.Logger
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
		s := &stage{Options: o, pipe: pipe}
		prefix := ""
		if len(sc.parts) > 1 {
			prefix = strings.TrimPrefix(pt.workload, sc.Name+"-") + ": "
		}
		err := s.play(ctx, pt)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s%w", prefix, err))
		}
		for _, c := range s.checks {
			c.What = prefix + c.What
			r.Checks = append(r.Checks, c)
			r.Expected[c.What], r.Observed[c.What] = c.Expected, c.Observed
			r.OK = r.OK && c.OK()
		}
		if pipe = s.pipe; pipe == nil && err == nil {
			for cause, n := range s.now.Lost {
				r.Lost[cause] += n
			}
		}
	}
	if err := errors.Join(failures...); err != nil {
		r.OK, r.Error = false, err.Error()
	}
	r.Took = time.Since(start)
	return r
}

// playTime bounds how long the workload of a part may run, without a storm.
const playTime = 5 * time.Minute

// play runs one part and compares. It closes the pipeline unless the next part needs it.
func (s *stage) play(ctx context.Context, pt part) (err error) {
	if s.truths, err = os.MkdirTemp("", "gputap-truth-"); err != nil {
		return fmt.Errorf("create a directory for the stub's totals: %w", err)
	}
	defer os.RemoveAll(s.truths)
	ctx, cancel := context.WithTimeout(ctx, playTime+time.Duration(s.StormSeconds)*time.Second)
	defer cancel()
	defer func() {
		if s.pipe != nil && (err != nil || !pt.keepPipeline) {
			s.pipe.Close()
			s.pipe = nil
		}
	}()
	if !pt.late && s.pipe == nil {
		if err := s.attach(ctx); err != nil {
			return err
		}
	}
	if err := s.launch(ctx, pt); err != nil {
		return err
	}
	for i, st := range pt.steps {
		if err := s.step(st.name); err != nil {
			return err
		}
		if pt.late && i == 0 {
			err = s.attach(ctx)
		} else {
			err = s.settle(settleTime, func(s *stage) checks { return s.atStep(st) })
		}
		if err != nil {
			return err
		}
		if err := s.proceed(); err != nil {
			return err
		}
	}
	if err := s.finish(pt.killed); err != nil {
		return err
	}
	return s.compareEnd(pt)
}

// compareEnd compares the totals after the end of the workload.
func (s *stage) compareEnd(pt part) error {
	within := settleTime
	if !pt.keepPipeline {
		if err := s.pipe.Drain(); err != nil {
			return err
		}
		within = 0 // every event has reached the folds
	}
	totals := pt.totals
	if totals == nil {
		totals = (*stage).totals
	}
	if err := s.settle(within, totals); err != nil {
		return err
	}
	if len(s.now.Processes) == 0 {
		return errors.New("gputap saw no process of the workload")
	}
	if pt.end != nil {
		s.checks = append(s.checks, pt.end(s)...)
	}
	return nil
}

// Result is the result of one scenario. Its JSON keys are a contract.
type Result struct {
	Name     string            `json:"name"`
	OK       bool              `json:"ok"`
	Expected map[string]any    `json:"expected"`
	Observed map[string]any    `json:"observed"`
	Lost     map[string]uint64 `json:"lost"` // events, by cause
	Error    string            `json:"error,omitempty"`
	Checks   []Check           `json:"-"` // in the order in which they were made
	Took     time.Duration     `json:"-"`
}

// Check compares one figure. The expected value comes from the stub, from the workload or from the listing that the
// scenario reproduces; the observed value comes from gputap.
type Check struct {
	What     string
	Expected any // equal to Observed, or bounds of a float64
	Observed any
}

// bounds are the smallest and the largest correct value of a figure.
type bounds struct {
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

func (b bounds) String() string { return fmt.Sprintf("%.5g to %.5g", b.Least, b.Most) }

// OK reports whether the observed value is a correct one.
func (c Check) OK() bool {
	if b, ok := c.Expected.(bounds); ok {
		got, ok := c.Observed.(float64)
		return ok && b.Least <= got && got <= b.Most
	}
	return c.Expected == c.Observed
}

// checks are the figures of one comparison.
type checks []Check

func (c *checks) add(what string, expected, observed any) {
	*c = append(*c, Check{what, expected, observed})
}

// addUnlessZero leaves out a figure that is 0 on both sides.
func (c *checks) addUnlessZero(what string, expected, observed uint64) {
	if expected|observed != 0 {
		c.add(what, expected, observed)
	}
}

func (c checks) ok() bool { return !slices.ContainsFunc(c, func(c Check) bool { return !c.OK() }) }
