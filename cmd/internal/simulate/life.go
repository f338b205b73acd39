package simulate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// A batch closes at the limits of a producer, except for its age.
const (
	batchEvents = 4096
	batchBytes  = 128 << 10
)

// life is a prepared recording: the batches of every host from its start until it starts over.
type life struct {
	steps  []step
	beat   step // a heartbeat
	period schema.KTime
	ids    uint32 // process and thread ids, from 1
	gpus   uint64 // numbers in the last digits of UUIDs, from 0
}

// step is one batch.
type step struct {
	due   schema.KTime // since the start of the life
	batch *schema.Batch
	bytes int  // encoded, about
	ends  bool // it has the exits at the end of a life
	// first is when the first call in this or a later step of a kind returns, since the start of the life.
	first [schema.NumKinds]schema.KTime
}

// maker makes a life from a recording.
type maker struct {
	life
	from    recording
	pace    pace
	age     schema.KTime
	lead    schema.KTime // before the first event, and after the last
	numbers map[uint32]uint32
	uuids   map[string]string
	alive   map[image]*ending
	order   []*ending
	open    [schema.NumKinds]*openBatch
	err     error
}

// image is a process of the recording.
type image struct {
	pid   uint32
	start schema.KTime
}

// ending says whether and when a process of the recording ends.
type ending struct {
	process schema.Process
	first   schema.KTime // its first event, as recorded
	ended   bool
}

// openBatch is one kind's batch under construction.
type openBatch struct {
	*schema.Builder
	opened, last schema.KTime
	due          schema.KTime    // of the batch before
	graphs       map[uint32]bool // functions of the graphs in this batch
}

// newLife spreads a recording so that it makes rate events a second.
func newLife(from recording, rate float64, age time.Duration) (*life, error) {
	m := &maker{
		from: from, age: schema.KTime(age), numbers: map[uint32]uint32{}, uuids: map[string]string{},
		alive: map[image]*ending{},
	}
	times := m.survey()
	period := float64(len(times)) / rate * float64(time.Second)
	if !(period <= float64(1000*24*time.Hour)) {
		return nil, errors.New("the rate is too low: set more events a second or fewer hosts")
	}
	m.period = max(schema.KTime(period), 1000)
	m.lead = min(schema.KTime(time.Millisecond), m.period/1000)
	perAge := rate * age.Seconds()
	m.pace = newPace(times, m.lead, m.period-m.lead, uint64(min(max(perAge/4, leastWindow), mostWindow)))
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		m.open[kind] = &openBatch{Builder: schema.NewBuilder(kind), graphs: map[uint32]bool{}}
		for _, e := range m.inOrder(kind) {
			at := m.pace.of(schema.KTime(e.time))
			m.event(m.openAt(kind, at), e.of, e.index, at)
		}
	}
	m.exits()
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		m.close(kind)
	}
	m.sort()
	m.heartbeat()
	return &m.life, m.err
}

// recorded is one event of the recording.
type recorded struct {
	of    *schema.Batch
	index int
	time  uint64
}

// inOrder returns a kind's events. Memory events keep the order of the recording, which has a meaning. The others came
// from the rings of many CPUs and are sorted by time, because a slower pace would spread unsorted events over batches.
func (m *maker) inOrder(kind schema.Kind) (all []recorded) {
	for _, b := range m.from {
		if b.Kind != kind {
			continue
		}
		for i := range b.Events {
			all = append(all, recorded{b, i, b.Time().At(i)})
		}
	}
	if kind != schema.KindMemory {
		slices.SortStableFunc(all, func(a, b recorded) int { return cmp.Compare(a.time, b.time) })
	}
	return all
}

// survey numbers ids and processes, and returns the times of all events.
func (m *maker) survey() (times []schema.KTime) {
	for _, b := range m.from {
		for i := range b.Events {
			at := schema.KTime(b.Time().At(i))
			times = append(times, at)
			m.see(&b.Processes[b.Threads[b.Thread().At(i)].Process], at)
		}
		for i := range b.Threads {
			m.number(b.Threads[i].TID)
		}
	}
	return times
}

func (m *maker) see(p *schema.Process, at schema.KTime) {
	m.number(p.PID)
	id := image{p.PID, p.Start}
	e := m.alive[id]
	if e == nil {
		e = &ending{first: at}
		m.alive[id] = e
		m.order = append(m.order, e)
	}
	e.first = min(e.first, at)
	e.process = *p
}

// number renumbers ids in order of first use, so that each host needs few.
func (m *maker) number(id uint32) uint32 {
	n, ok := m.numbers[id]
	if !ok {
		m.ids++
		n = m.ids
		m.numbers[id] = n
	}
	return n
}

// openAt returns the kind's open batch, which has room for an event at this time.
func (m *maker) openAt(kind schema.Kind, at schema.KTime) *openBatch {
	o := m.open[kind]
	if n := o.Events(); n >= batchEvents || n > 0 && at > o.opened+m.age || n%256 == 255 && o.Size() >= batchBytes {
		m.close(kind)
	}
	if o.Events() == 0 {
		o.opened, o.last = at, 0
	}
	o.last = max(o.last, at)
	return o
}

// close turns the batch into a step. Due times of a kind never decrease.
func (m *maker) close(kind schema.Kind) {
	o := m.open[kind]
	if o.Events() == 0 {
		return
	}
	o.due = max(o.due, o.last)
	m.steps = append(m.steps, m.step(o.Builder, o.due))
	o.Reset()
	clear(o.graphs)
}

// step makes a step from the batch of a Builder. It keeps the first error.
func (m *maker) step(b *schema.Builder, due schema.KTime) step {
	message := bytes.Clone(b.Encode(&schema.Header{}))
	batch, err := decode(message)
	if m.err == nil {
		m.err = err
	}
	return step{due: due, batch: batch, bytes: len(message)}
}

// sort puts the steps into the order of their due times, and sets first of all steps.
func (m *maker) sort() {
	slices.SortStableFunc(m.steps, func(a, b step) int { return cmp.Compare(a.due, b.due) })
	var first [schema.NumKinds]schema.KTime
	for kind := range first {
		first[kind] = m.period
	}
	for i := range slices.Backward(m.steps) {
		b := m.steps[i].batch
		for event := range b.Events {
			returned := b.Time().At(event)
			if b.Kind != schema.KindLaunch { // which has no duration
				returned += b.Duration().At(event)
			}
			first[b.Kind] = min(first[b.Kind], schema.KTime(max(returned, b.Time().At(event)))) // the sum may wrap
		}
		m.steps[i].first = first
	}
}

// exits ends all live processes after all other events.
func (m *maker) exits() {
	ended := false
	for _, e := range m.order {
		if e.ended {
			continue
		}
		ended = true
		at := m.period - m.lead
		o := m.openAt(schema.KindMemory, at)
		o.AddMemory(&schema.Memory{
			Time: at, Call: o.Call(schema.Calls[schema.CallExit].Ref()),
			Thread: o.Thread(schema.Thread{
				Process: m.process(o.Builder, &e.process), TID: m.number(e.process.PID), Comm: e.process.Comm,
			}),
		})
	}
	m.close(schema.KindMemory)
	if ended {
		m.steps[len(m.steps)-1].ends = true
	}
}

// heartbeat makes the heartbeat: the libraries of the recording's last heartbeat and every GPU of the recording, as a
// heartbeat describes it if one does.
func (m *maker) heartbeat() {
	b := schema.NewBuilder(schema.KindHost)
	b.Linux, b.Producer = "simulated", "simulated"
	isOther := func(from *schema.Batch) bool { return from.Kind != schema.KindHost }
	heartbeats, known := slices.DeleteFunc(slices.Clone(m.from), isOther), map[string]bool{"": true}
	for _, from := range slices.Concat(heartbeats, m.from) {
		if !isOther(from) {
			b.Libraries, b.Linux = from.Libraries, from.Linux
		}
		for _, g := range from.GPUs {
			if !known[g.UUID] {
				known[g.UUID] = true
				g.UUID, g.Inferred, g.Bytes = m.uuid(g.UUID), false, cmp.Or(g.Bytes, simulatedGPU)
				b.GPU(g)
			}
		}
	}
	m.beat = m.step(b, 0)
}

func gpuUUID(prefix string, number uint64) string {
	return fmt.Sprintf("%s-51500000-0000-4000-8000-%012x", prefix, number)
}

// uuid gives each GPU a number in the last 12 digits of its UUID.
func (m *maker) uuid(recorded string) string {
	if recorded == "" {
		return ""
	}
	to, ok := m.uuids[recorded]
	if !ok {
		prefix, _, _ := strings.Cut(recorded, "-") // GPU or MIG
		to = gpuUUID(prefix, m.gpus)
		m.gpus++
		m.uuids[recorded] = to
	}
	return to
}
