package naive

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/ianlancetaylor/demangle"

	"github.com/gputap/gputap/schema"
)

// rated is launches with what their rates need.
type rated struct {
	count, minute uint64
}

func (r *rated) add(n uint64, in bool) {
	r.count += n
	if in {
		r.minute += n
	}
}

// kernel is the launches of one kernel name.
type kernel struct {
	rated
	mangled    string
	fromGraphs uint64
	read       bool // of every handle the name was read from memory
	shapes     []*shape
}

type shape struct {
	rated
	grid, block [3]uint32
	shared      uint32
}

type executable struct {
	rated
	handle, kernels uint64
	partial         bool
}

// launches are the launches of one process.
type launches struct {
	seconds     float64 // life
	minute      uint64  // the last complete one
	known       bool    // the process has lived through that minute
	kernels     []*kernel
	executables []*executable
	all, graphs rated
	partial     uint64
	hostFuncs   uint64
	recorded    uint64
	gaps        map[uint64][]uint64 // ns by CUDA stream
	calls       map[string]*calls
}

func minuteOf(at schema.KTime) uint64 { return uint64(at) / 60e9 }

// launchesOf counts the launches of a process. Its life ends with the last batch that has a launch or a gap of it.
func (l *Log) launchesOf(id schema.ProcessID) *launches {
	q := &launches{gaps: map[uint64][]uint64{}, calls: map[string]*calls{}}
	own := l.of(schema.KindLaunch, id)
	for _, e := range l.of(schema.KindSync, id) {
		if e.call.Op == schema.OpResume {
			q.gaps[e.cudaQueue] = append(q.gaps[e.cudaQueue], e.Duration)
			own = append(own, e)
		}
	}
	if len(own) == 0 {
		return q
	}
	slices.SortStableFunc(own, func(a, b event) int { return cmp.Compare(a.number, b.number) })
	began, last := id.Start, schema.KTime(0)
	if own[0].process.Late {
		began = own[0].First
	}
	for _, e := range own {
		last = max(last, e.Last)
	}
	q.seconds = float64(last-began) / 1e9
	boot, now := l.reached(id.Cluster, id.Host)
	if boot == id.BootID && minuteOf(now) > 0 {
		q.minute = minuteOf(now) - 1
		q.known = uint64(began) <= q.minute*60e9
	}
	for i := range own {
		if own[i].kind == schema.KindLaunch {
			q.launch(&own[i])
		}
	}
	return q
}

// reached returns the boot of a host that runs, and the time up to which its launches and waits are known.
func (l *Log) reached(cluster, host string) (boot string, now schema.KTime) {
	for _, b := range l.batches {
		last := b.Last
		for i := range l.beats {
			if beat := &l.beats[i]; beat.number == b.number && len(beat.Ends) > 0 {
				last = beat.Ends[0].Through // all kinds have the same
			}
		}
		if b.Cluster != cluster || b.Host != host || last == 0 ||
			b.Kind != schema.KindLaunch && b.Kind != schema.KindSync && b.Kind != schema.KindHost {
			continue
		}
		if b.BootID != boot {
			boot, now = b.BootID, 0
		}
		now = max(now, last)
	}
	return boot, now
}

func (q *launches) launch(e *event) {
	in := q.known && minuteOf(e.Time) == q.minute
	if !count(q.calls, e) {
		q.recorded++
		return
	}
	switch e.call.Op {
	case schema.OpHostFunc:
		q.hostFuncs++
	case schema.OpLaunch:
		q.all.add(1, in)
		k := q.kernel(e.function)
		k.add(1, in)
		k.shape(e.shape, in)
	case schema.OpGraphLaunch:
		q.graphs.add(1, in)
		x := q.executable(e.function.Handle)
		x.add(1, in)
		x.kernels, x.partial = 0, e.graph == nil || e.graph.partial
		if x.partial {
			q.partial++
		}
		if e.graph == nil {
			return
		}
		for _, n := range e.graph.nodes {
			x.kernels += n.count
			q.all.add(n.count, in)
			k := q.kernel(n.function)
			k.add(n.count, in)
			k.fromGraphs += n.count
		}
	}
}

func (q *launches) kernel(f schema.Func) *kernel {
	for _, k := range q.kernels {
		if k.mangled == f.Name {
			k.read = k.read && f.Read
			return k
		}
	}
	k := &kernel{mangled: f.Name, read: f.Read}
	q.kernels = append(q.kernels, k)
	return k
}

func (q *launches) executable(handle uint64) *executable {
	for _, x := range q.executables {
		if x.handle == handle {
			return x
		}
	}
	x := &executable{handle: handle}
	q.executables = append(q.executables, x)
	return x
}

// shape counts a launch under the first 8 shapes.
func (k *kernel) shape(s schema.LaunchShape, in bool) {
	for _, known := range k.shapes {
		if known.grid == s.Grid && known.block == s.Block && known.shared == s.SharedBytes {
			known.add(1, in)
			return
		}
	}
	if len(k.shapes) < 8 {
		k.shapes = append(k.shapes, &shape{rated{}, s.Grid, s.Block, s.SharedBytes})
		k.shapes[len(k.shapes)-1].add(1, in)
	}
}

func (k *kernel) name() string {
	if k.mangled == "" {
		return "unknown"
	}
	return demangle.Filter(k.mangled)
}

func (k *kernel) object() Object {
	source := "told"
	switch {
	case k.mangled == "":
		source = "unknown"
	case k.read:
		source = "read"
	}
	return Object{"launches": k.count, "from_graphs": k.fromGraphs, "name_source": source}
}

// rate adds a rate to an object; of is the number of all launches.
func (q *launches) rate(r rated, of uint64, to Object) Object {
	to["launches"], to["per_second"], to["per_second_last_minute"] = r.count, 0.0, nil
	to["share"] = float64(r.count) / float64(max(of, 1))
	if q.seconds > 0 {
		to["per_second"] = float64(r.count) / q.seconds
	}
	if q.known {
		to["per_second_last_minute"] = float64(r.minute) / 60
	}
	return to
}

// add adds the figures of launches to a process.
func (q *launches) add(to Object, paired bool) {
	names, kernels, top, graphs := map[string]uint64{}, Object{}, []any{}, []any{}
	slices.SortFunc(q.kernels, func(a, b *kernel) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.name(), b.name()), cmp.Compare(a.mangled, b.mangled))
	})
	for _, k := range q.kernels {
		names[k.name()], kernels[k.name()] = k.count, k.object()
		shapes := []any{}
		slices.SortStableFunc(k.shapes, func(a, b *shape) int { return cmp.Compare(b.count, a.count) })
		for _, s := range k.shapes {
			shapes = append(shapes, q.rate(s.rated, q.all.count, Object{"grid": s.grid, "block": s.block,
				"shared_bytes": s.shared}))
		}
		top = append(top, q.rate(k.rated, q.all.count, Object{"kernel": k.name(), "shapes": shapes}))
	}
	slices.SortFunc(q.executables, func(a, b *executable) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.handle, b.handle))
	})
	for _, x := range q.executables {
		graphs = append(graphs, q.rate(x.rated, q.graphs.count, Object{"handle": address(x.handle),
			"kernels_per_launch": x.kernels, "partial": x.partial}))
	}
	maps.Copy(to, Object{"launches": names, "kernels": kernels, "graph_launches": q.graphs.count,
		"graph_launches_partial": q.partial, "host_functions": q.hostFuncs, "top_kernels": top, "graphs": graphs,
		"launch_gaps": nil})
	if list := q.gapList(); paired || len(list) > 0 {
		to["launch_gaps"] = list
	}
}

// gapList sorts the gaps of each CUDA stream, the most gaps first. A quantile is the next power of two of seconds, at
// most the maximum.
func (q *launches) gapList() []any {
	list := []any{}
	for _, queue := range slices.SortedFunc(maps.Keys(q.gaps), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(len(q.gaps[b]), len(q.gaps[a])), cmp.Compare(a, b))
	}) {
		all, sum := slices.Sorted(slices.Values(q.gaps[queue])), uint64(0)
		for _, ns := range all {
			sum += ns
		}
		longest := float64(all[len(all)-1]) / 1e9
		quantile := func(percent int) float64 {
			ns := all[(percent*len(all)+99)/100-1]
			power := 0x1p-30
			for power*1e9 < float64(ns) {
				power *= 2
			}
			return math.Min(power, longest)
		}
		name := fmt.Sprintf("%#x", queue)
		if queue <= 2 { // 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
			name = "default"
		}
		list = append(list, Object{"cuda_stream": name, "count": len(all), "seconds": float64(sum) / 1e9,
			"p50_seconds": quantile(50), "p90_seconds": quantile(90), "p99_seconds": quantile(99),
			"max_seconds": longest})
	}
	return list
}
