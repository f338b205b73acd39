package fold

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// composite is a fold that is made of folds. Each part sees the batches of its kinds alone.
type composite struct{ all []part }

type part struct {
	consumer.Stateful
	kinds []schema.Kind
}

// newComposite returns a composite. The order of the parts is that in which their sections are saved.
func newComposite(folds ...consumer.Stateful) (c composite) {
	for _, f := range folds {
		c.all = append(c.all, part{f, f.Kinds()})
	}
	return c
}

// Parts returns the folds of which c is made.
func (c *composite) Parts() (folds []consumer.Fold) {
	for _, p := range c.all {
		folds = append(folds, p.Stateful)
	}
	return folds
}

// Kinds returns the kinds that any part reads.
func (c *composite) Kinds() (kinds []schema.Kind) {
	for _, p := range c.all {
		kinds = append(kinds, p.kinds...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Apply gives a batch to the parts that read its kind.
func (c *composite) Apply(b *schema.Batch) error {
	var failed error
	for i := range c.all {
		if slices.Contains(c.all[i].kinds, b.Kind) {
			if err := c.all[i].Apply(b); err != nil {
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

// Lost reports lost batches to all parts that know losses: which kind they had is not known.
func (c *composite) Lost(cluster, host, boot string, batches uint64) {
	for _, p := range c.all {
		if f, ok := p.Stateful.(interface {
			Lost(cluster, host, boot string, batches uint64)
		}); ok {
			f.Lost(cluster, host, boot, batches)
		}
	}
}

// Tick tells the parts how far the events of a host are complete.
func (c *composite) Tick(h *schema.Header, through schema.KTime) {
	for _, p := range c.all {
		if f, ok := p.Stateful.(interface {
			Tick(h *schema.Header, through schema.KTime)
		}); ok {
			f.Tick(h, through)
		}
	}
}

// Forget removes a host from all parts.
func (c *composite) Forget(cluster, host string) {
	for _, p := range c.all {
		if f, ok := p.Stateful.(interface{ Forget(cluster, host string) }); ok {
			f.Forget(cluster, host)
		}
	}
}

// Snapshot yields the sections of each part.
func (c *composite) Snapshot(yield func(snapshot.Section) error) error {
	for _, p := range c.all {
		if err := p.Snapshot(yield); err != nil {
			return err
		}
	}
	return nil
}

// Restore restores one section of the part that saved it.
func (c *composite) Restore(s snapshot.Section) error {
	name := s.Fold()
	for _, p := range c.all {
		if p.Name() == name {
			return p.Restore(s)
		}
	}
	return c.all[len(c.all)-1].Restore(s) // which returns the error
}

// Describe implements prometheus.Collector.
func (c *composite) Describe(to chan<- *prometheus.Desc) {
	for _, p := range c.all {
		if f, ok := p.Stateful.(prometheus.Collector); ok {
			f.Describe(to)
		}
	}
}

// Collect implements prometheus.Collector.
func (c *composite) Collect(to chan<- prometheus.Metric) {
	for _, p := range c.all {
		if f, ok := p.Stateful.(prometheus.Collector); ok {
			f.Collect(to)
		}
	}
}

// Overflow reports how often the parts counted a series as other.
func (c *composite) Overflow(see func(family string, times uint64)) {
	for _, p := range c.all {
		if f, ok := p.Stateful.(interface {
			Overflow(see func(family string, times uint64))
		}); ok {
			f.Overflow(see)
		}
	}
}
