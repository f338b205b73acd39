package anomaly

import "github.com/gputap/gputap/schema"

// tensors tells the rules the totals of PyTorch's allocators: the last ones of each thread and GPU in the batch, or all
// if an allocation of the process failed.
func (d *Detector) tensors(b *schema.Batch, procs []*proc) {
	c := &d.columns
	c.threads = b.Thread().Values(c.threads, b.Events)
	c.gpus = b.GPU().Values(c.gpus, b.Events)
	gpus := len(b.GPUs) + 1
	d.counts = append(d.counts[:0], make([]uint64, len(procs)*gpus)...) // 1 + index of the last event
	last, watched := d.counts, false
	for i, thread := range c.threads {
		last[int(thread)*gpus+int(c.gpus[i])] = uint64(i) + 1
	}
	for _, p := range procs {
		watched = watched || p.State.Watched()
	}
	if watched {
		for i := range b.Events {
			tell(b, procs, i)
		}
		return
	}
	for _, i := range last {
		if i > 0 {
			tell(b, procs, int(i-1))
		}
	}
}

func tell(b *schema.Batch, procs []*proc, i int) {
	e := b.Tensor(i)
	s := &procs[e.Thread].State
	s.Tensors(s.GPU(b, e.GPU), e.Time, e.Allocated, e.Reserved)
}
