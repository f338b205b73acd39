package analyze

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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
		Use: "bandwidth" + source.Argument, Short: "Bytes copied per second over time, by direction",
		Long: `Bytes copied per second over time, by direction. A copy counts when its call was entered: an asynchronous copy when it
was submitted.
` + exitStatus,
		Example: "  gputap plot bandwidth run.gputap -o copies.png\n" +
			"  gputap plot bandwidth run.gputap -o copies.svg --comm python3 --step 1s",
		Args: cobra.MaximumNArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if c.step < 0 {
				return app.Usage(fmt.Errorf("--step %s: use 0 or more", c.step))
			}
			return c.checkPicture()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.drawCopies(cmd.Context(), args) },
	}
	c.pictureFlags(cmd)
	cmd.Flags().DurationVar(&c.step, "step", 0, "time over which a rate is a mean (default: a 200th of the range)")
	c.AddFlags(cmd)
	return cmd
}

// drawCopies reads the source and writes the chart.
func (c *picture) drawCopies(ctx context.Context, args []string) error {
	s, err := c.Open(ctx, c.p, args, schema.KindCopy, schema.KindHost)
	if err != nil {
		return err
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
			return fmt.Errorf("plot %s: %w", s.Name, err)
		}
		if b := batches.Of(&m); b != nil {
			copies.add(b, batches.Selects(b))
		}
	}
	missing := slices.Concat(s.Missing(), s.Unrecorded(schema.KindCopy), batches.Missing())
	chart := copies.chart(c.step)
	if chart.Note = strings.Join(missing, "; "); c.Host != "" {
		chart.Subtitle = "host " + c.Host
	}
	if err := chart.WriteFile(c.file, c.size); err != nil {
		return err
	}
	return source.Incomplete(missing)
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

// chart draws the rates. A step is at least one slot.
func (r *copyRates) chart(step time.Duration) *plot.Chart {
	chart := &plot.Chart{Title: "Copies and sets by direction", YLabel: "Copied", Unit: plot.BytesPerSecond,
		Stacked: true}
	if len(r.slots) == 0 {
		return chart
	}
	chart.Begin = time.Unix(0, r.first*r.width).UTC()
	each := int(int64(step) / r.width)
	if step == 0 {
		each = len(r.slots) / 200
	}
	each = max(each, 1)
	for direction := range schema.NumDirections {
		points := r.points(int(direction), each)
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

// points yields the rate of one direction in each step of some slots, and 0 behind the last.
func (r *copyRates) points(direction, each int) iter.Seq[plot.Point] {
	return func(yield func(plot.Point) bool) {
		width := time.Duration(r.width)
		for from := 0; from < len(r.slots); from += each {
			total, n := uint64(0), min(each, len(r.slots)-from)
			for i := range n {
				total += r.slots[from+i][direction]
			}
			rate := float64(total) / (time.Duration(n) * width).Seconds()
			if !yield(plot.Point{At: time.Duration(from) * width, Value: rate}) {
				return
			}
		}
		yield(plot.Point{At: time.Duration(len(r.slots)) * width})
	}
}
