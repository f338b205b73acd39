package analyze

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/plot"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

func bandwidthPlotCommand(p *app.Process) *cobra.Command {
	c := &picture{question: question{p: p}, size: plot.DefaultSize}
	cmd := &cobra.Command{
		Use: "bandwidth FILE… | --since TIME", Short: "Bytes copied per second over time, by direction",
		Long: `Bytes copied per second over time, by direction; of several recordings one line each, from their beginnings on. A
copy counts when its call was entered: an asynchronous copy when it was submitted.
` + exitStatus,
		Example: "  gputap plot bandwidth run.gputap -o copies.png\n" +
			"  gputap plot bandwidth run.gputap -o copies.svg --comm python3 --step 1s\n" +
			"  gputap plot bandwidth good.gputap bad.gputap -o both.png",
		PreRunE: func(_ *cobra.Command, args []string) error {
			switch {
			case c.step < 0:
				return app.Usage(fmt.Errorf("--step %s: use 0 or more", c.step))
			case len(args) > plot.Limit:
				return app.Usage(fmt.Errorf("%d recordings: use at most %d", len(args), plot.Limit))
			}
			return c.checkPicture(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.drawCopies(cmd.Context(), args) },
	}
	c.pictureFlags(cmd)
	cmd.Flags().DurationVar(&c.step, "step", 0, "time over which a rate is a mean (default: a 200th of the range)")
	c.AddFlags(cmd)
	return cmd
}

// drawCopies reads the sources and writes the chart.
func (c *picture) drawCopies(ctx context.Context, args []string) error {
	var names, missing []string
	var runs []*copyRates
	for _, path := range sources(args) {
		name, run, lacks, err := c.readCopies(ctx, path)
		if err != nil {
			return err
		}
		runs, names, missing = append(runs, run), append(names, name), append(missing, lacks...)
	}
	chart := ratesChart(names, runs, c.step)
	if len(runs) == 1 {
		chart = runs[0].chart(c.step)
	}
	if chart.Note = strings.Join(missing, "; "); c.Host != "" {
		chart.Subtitle = "host " + c.Host
	}
	if err := chart.WriteFile(c.file, c.size); err != nil {
		return err
	}
	return source.Incomplete(missing)
}

// readCopies reads the copies of one source.
func (c *picture) readCopies(ctx context.Context, args []string) (
	name string, run *copyRates, missing []string, err error,
) {
	s, err := c.Open(ctx, c.p, args, schema.KindCopy, schema.KindHost)
	if err != nil {
		return "", nil, nil, err
	}
	defer s.Close()
	copies, batches := &copyRates{width: firstWidth}, source.NewBatches(&c.Range)
	filter := recording.Filter{Since: c.Since, Until: c.Until}
	filter.Kinds = []schema.Kind{schema.KindCopy}
	for m, err := range s.Messages(filter) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", nil, nil, fmt.Errorf("plot %s: %w", s.Name, err)
		}
		if b := batches.Of(&m); b != nil {
			copies.add(b, batches.Selects(b))
		}
	}
	if !batches.Selected() {
		if missing, err = s.Unselected(ctx, &c.Range); err != nil {
			return "", nil, nil, err
		}
	}
	return filepath.Base(s.Name), copies,
		slices.Concat(missing, s.Missing(), s.Unrecorded(schema.KindCopy), batches.Missing()), nil
}

const (
	firstWidth = int64(time.Millisecond) // of a slot
	maxSlots   = 1 << 14
)

// copyRates sums the bytes of copies in slots of time. When it has too many slots, their width doubles, so that memory
// is bounded whatever the range is.
type copyRates struct {
	width int64 // ns
	first int64 // slot number of slots[0], counted in width since 1970
	slots [][schema.NumDirections]uint64
}

func (r *copyRates) add(b *schema.Batch, selects []bool) {
	for i := range b.Events {
		e := b.Copy(i)
		if selects[b.Threads[e.Thread].Process] && e.Result == 0 {
			r.slot(b.Wall(e.Time).UnixNano())[b.Calls[e.Call].Direction] += e.Bytes
		}
	}
}

// slot returns the slot of a time.
func (r *copyRates) slot(at int64) *[schema.NumDirections]uint64 {
	for {
		n := at / r.width
		if len(r.slots) == 0 {
			r.first = n
		}
		first, last := min(r.first, n), max(r.first+int64(len(r.slots))-1, n)
		if last-first >= maxSlots {
			r.widen()
			continue
		}
		if n < r.first {
			r.slots = slices.Insert(r.slots, 0, make([][schema.NumDirections]uint64, r.first-n)...)
			r.first = n
		}
		if more := n - r.first - int64(len(r.slots)) + 1; more > 0 {
			r.slots = append(r.slots, make([][schema.NumDirections]uint64, more)...)
		}
		return &r.slots[n-r.first]
	}
}

// widen doubles the width of the slots.
func (r *copyRates) widen() {
	first := r.first / 2
	wide := make([][schema.NumDirections]uint64, (r.first+int64(len(r.slots))-1)/2-first+1)
	for i := range r.slots {
		for direction, n := range r.slots[i] {
			wide[(r.first+int64(i))/2-first][direction] += n
		}
	}
	r.width, r.first, r.slots = 2*r.width, first, wide
}

// chart draws the rates by direction.
func (r *copyRates) chart(step time.Duration) *plot.Chart {
	chart := &plot.Chart{Title: "Copies and sets by direction", YLabel: "Copied", Unit: plot.BytesPerSecond,
		Stacked: true}
	if len(r.slots) == 0 {
		return chart
	}
	chart.Begin = time.Unix(0, r.first*r.width).UTC()
	if step == 0 {
		step = r.duration() / 200
	}
	for direction := range schema.NumDirections {
		points := r.points(step, func(slot *[schema.NumDirections]uint64) uint64 { return slot[direction] })
		for p := range points {
			if p.Value > 0 {
				name := cmp.Or(direction.String(), "set")
				chart.Series = append(chart.Series, plot.Series{Name: name, Step: true, Points: points})
				break
			}
		}
	}
	return chart
}

// ratesChart draws the rates of several recordings as lines that begin together.
func ratesChart(names []string, runs []*copyRates, step time.Duration) *plot.Chart {
	chart := &plot.Chart{Title: "Copies and sets of each run", YLabel: "Copied", Unit: plot.BytesPerSecond}
	if step == 0 {
		for _, r := range runs {
			step = max(step, r.duration()/200)
		}
	}
	for i, r := range runs {
		points := r.points(step, func(slot *[schema.NumDirections]uint64) (bytes uint64) {
			for _, n := range slot {
				bytes += n
			}
			return bytes
		})
		chart.Series = append(chart.Series, plot.Series{Name: names[i], Step: true, Points: points})
	}
	return chart
}

func (r *copyRates) duration() time.Duration { return time.Duration(int64(len(r.slots)) * r.width) }

// points yields the rate of some bytes of each slot in each step, and 0 behind the last. A step is at least one slot.
func (r *copyRates) points(step time.Duration, bytes func(*[schema.NumDirections]uint64) uint64) iter.Seq[plot.Point] {
	return func(yield func(plot.Point) bool) {
		width := time.Duration(r.width)
		each := max(int(step/width), 1)
		for from := 0; from < len(r.slots); from += each {
			total, n := uint64(0), min(each, len(r.slots)-from)
			for i := range n {
				total += bytes(&r.slots[from+i])
			}
			rate := float64(total) / (time.Duration(n) * width).Seconds()
			if !yield(plot.Point{At: time.Duration(from) * width, Value: rate}) {
				return
			}
		}
		yield(plot.Point{At: time.Duration(len(r.slots)) * width})
	}
}
