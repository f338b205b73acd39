package record

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Range records what NATS stored from o.Since to o.Until, or to now, into a new file in dir; "" is the directory for
// temporary files. It ignores o.Path. It removes the file after an error and if ctx ends; otherwise the caller does.
// Stats.Path is the file, and Stats.Lost tells whether messages are missing in it. watch, if it is not nil, gets the
// recorder before it runs, and what it returns is called afterwards.
func Range(ctx context.Context, o Options, dir string, watch func(*Recorder) (stop func())) (s Stats, err error) {
	file, err := os.CreateTemp(dir, "gputap-range-*.gtr")
	if err != nil {
		return s, fmt.Errorf("record a range: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := file.Close(); err != nil {
		return s, fmt.Errorf("record a range: %w", err)
	}
	o.Path, o.MaxFileBytes = file.Name(), 0
	if o.Until.IsZero() {
		o.Until = time.Now()
	}
	r := New(o)
	if watch != nil {
		defer watch(r)()
	}
	if err := r.Run(ctx); err != nil {
		return s, err
	}
	if ctx.Err() != nil {
		return s, fmt.Errorf("record a range: %w", ctx.Err())
	}
	return r.Stats(), nil
}
