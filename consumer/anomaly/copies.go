package anomaly

import (
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/schema"
)

// copies folds a copy batch column by column.
func (d *Detector) copies(b *schema.Batch, procs []*proc) {
	c := &d.columns
	c.threads = b.Thread().Values(c.threads, b.Events)
	c.calls = b.Call().Values(c.calls, b.Events)
	c.results = b.Result().Values(c.results, b.Events)
	c.bytes = b.Bytes().Values(c.bytes, b.Events)
	c.durations = b.Duration().Values(c.durations, b.Events)
	c.gpus = b.GPU().Values(c.gpus, b.Events)
	c.memory = b.HostMem().Values(c.memory, b.Events)
	index := rule.IndexOf(b.First)
	oneWindow := index == rule.IndexOf(b.Last)
	d.actions = d.actions[:0]
	for i := range b.Calls {
		d.actions = append(d.actions, copyOf(&b.Calls[i]))
	}
	for i, call := range c.calls {
		do := d.actions[call]
		if do == ignore || c.bytes[i] < rule.LargeBytes || c.results[i] != 0 {
			continue
		}
		if !oneWindow {
			index = rule.IndexOf(schema.KTime(b.Time().At(i)))
		}
		s := &procs[c.threads[i]].State
		s.Copied(index, &rule.Copy{
			GPU: s.GPU(b, uint32(c.gpus[i])), Direction: b.Calls[call].Direction, Memory: schema.HostMem(c.memory[i]),
			Bytes: c.bytes[i], NS: c.durations[i], Async: do == submit,
		})
	}
}

// copyOf returns whether a call copies between host and GPU, or submits such a copy.
func copyOf(c *schema.CallRef) action {
	switch {
	case c.Direction != schema.HtoD && c.Direction != schema.DtoH:
	case c.Op == schema.OpCopy:
		return copied
	case c.Op == schema.OpCopyAsync:
		return submit
	}
	return ignore
}
