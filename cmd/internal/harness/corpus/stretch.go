package corpus

import "github.com/gputap/gputap/schema"

// stretch fills an empty Builder with a batch whose event time runs slower by a factor: every KTime, and the duration
// of memory calls, so that frees stay behind allocations. Durations of copies and waits stay, and so does throughput.
// Entries of dictionaries stay different, so they keep their indices.
func stretch(b *schema.Batch, to *schema.Builder, factor schema.KTime) {
	for _, p := range b.Processes {
		p.Start *= factor
		to.Process(p)
	}
	for _, t := range b.Threads {
		to.Thread(t)
	}
	for _, g := range b.GPUs {
		to.GPU(g)
	}
	for _, c := range b.Calls {
		to.Call(c)
	}
	for _, f := range b.Funcs {
		to.Func(f)
	}
	for _, s := range b.Shapes {
		to.Shape(s)
	}
	for _, g := range b.Graphs {
		to.Graph(g)
	}
	for _, c := range b.Contexts {
		to.Context(c)
	}
	for _, handle := range b.CUDAStreams {
		to.CUDAStream(handle)
	}
	for _, stack := range b.Stacks {
		to.Stack(stack)
	}
	to.Libraries, to.Linux, to.Producer, to.Coverage = b.Libraries, b.Linux, b.Producer, b.Coverage
	to.Older, to.Ends = b.Older, to.Ends[:0]
	for _, e := range b.Ends {
		e.Through *= factor
		to.Ends = append(to.Ends, e)
	}
	for i := range b.Events {
		stretchEvent(b, i, to, factor)
	}
}

func stretchEvent(b *schema.Batch, i int, to *schema.Builder, factor schema.KTime) {
	switch b.Kind {
	case schema.KindMemory:
		e := b.Memory(i)
		e.Time *= factor
		e.Duration *= uint64(factor)
		to.AddMemory(&e)
	case schema.KindLaunch:
		e := b.Launch(i)
		e.Time *= factor
		to.AddLaunch(&e)
	case schema.KindCopy:
		e := b.Copy(i)
		e.Time *= factor
		to.AddCopy(&e)
	case schema.KindSync:
		e := b.Sync(i)
		e.Time *= factor
		to.AddSync(&e)
	case schema.KindTensor:
		e := b.Tensor(i)
		e.Time *= factor
		to.AddTensor(&e)
	}
}
