package answer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// machine makes the batches of one boot of a host. Its programs make plausible calls, and now and then one that
// contradicts the others or fails.
type machine struct {
	*consumertest.Host
	rng      *rand.Rand
	now      schema.KTime
	builders map[schema.Kind]*schema.Builder // except of memory
	seqs     map[schema.Kind]uint64
	programs []*job
	pid      uint32
	memory   int             // events in the open batch
	graphs   map[uint32]bool // whose nodes the open batch has
	publish  func(h *schema.Header, message []byte)
}

// job is one program.
type job struct {
	*consumertest.Process
	m         *machine
	gpus      []*schema.GPU // nil: unknown
	allocated uint64        // by PyTorch
	queues    []uint64
	uses      int
}

func newMachine(tb testing.TB, rng *rand.Rand, cluster, host, boot string, offset int64,
	publish func(*schema.Header, []byte),
) *machine {
	m := &machine{Host: consumertest.Memory(tb, host), rng: rng, now: 70e9, builders: map[schema.Kind]*schema.Builder{},
		seqs: map[schema.Kind]uint64{}, graphs: map[uint32]bool{}, pid: 100, publish: publish}
	m.Header.Cluster, m.Header.BootID, m.Header.ClockOffset = cluster, boot, 1_700_000_000e9+offset
	for _, kind := range []schema.Kind{schema.KindLaunch, schema.KindCopy, schema.KindSync, schema.KindTensor} {
		m.builders[kind] = schema.NewBuilder(kind)
	}
	for range 4 {
		m.begin(m.pid)
	}
	return m
}

// begin begins a program.
func (m *machine) begin(pid uint32) {
	m.pid = max(m.pid, pid+1)
	j := &job{Process: m.Process(pid, m.now, fmt.Sprintf("job-%d", pid)), m: m, queues: []uint64{0, 2, 0x5500, 0x5600}}
	if j.User, j.UID, j.Exe = "ann", 1000+pid, "/bin/job"; pid%3 == 0 {
		j.Job, j.Rank, j.Pod, j.Unit, j.Cgroup, j.NSPID = "slurm:7", 1+pid%8, "pod-1", "job.service", "/a/b", 7
		j.Container = "c0ffee"
	}
	if pid == 102 {
		j.Late, j.Start = true, 5e9
	}
	for ordinal := range uint32(2) {
		j.gpus = append(j.gpus, &schema.GPU{UUID: fmt.Sprintf("GPU-%s-%d", m.Header.Host, (ordinal+pid)%2),
			Ordinal: ordinal, Inferred: pid%2 == 0})
	}
	switch pid {
	case 101:
		j.gpus = j.gpus[:1]
	case 103:
		j.gpus = []*schema.GPU{nil}
	}
	m.programs = append(m.programs, j)
	j.use(0)
	if j.GPU != nil {
		j.RetainContext(j.Context, m.now)
	}
	m.memory++
}

// use makes a GPU of the program and its primary context current. One program asks late which GPU it has.
func (j *job) use(n int) {
	j.GPU, j.Context = j.gpus[n], 0
	if j.GPU == nil {
		return
	}
	j.Context = 0x1000 + uint64(n)
	if j.uses++; j.PID == 101 && j.uses < 60 {
		j.GPU = &schema.GPU{Ordinal: j.GPU.Ordinal}
	}
}

// run makes n calls.
func (m *machine) run(n int) {
	for range n {
		m.now += schema.KTime(m.rng.Uint64N([]uint64{1e6, 400e6}[m.rng.IntN(2)]))
		i := m.rng.IntN(len(m.programs))
		j := m.programs[i]
		j.use(m.rng.IntN(len(j.gpus)))
		switch m.rng.IntN(8) {
		case 0, 1, 2, 3:
			j.memory()
			m.memory++
		case 4:
			j.launch()
		case 5:
			j.copy()
		case 6:
			j.wait()
		case 7:
			j.tensor()
		}
		if m.rng.IntN(250) == 0 {
			m.end(i)
		}
		if m.rng.IntN(40) == 0 {
			m.flush(false)
		}
		if m.rng.IntN(200) == 0 {
			m.flush(true)
		}
	}
	m.flush(true)
	m.programs[0].launch() // the last batch is no heartbeat
	m.flush(false)
}

// end ends a program. Another one gets its PID, or a new one.
func (m *machine) end(i int) {
	j := m.programs[i]
	m.programs = append(m.programs[:i:i], m.programs[i+1:]...)
	pid := m.pid
	switch m.rng.IntN(4) {
	case 0:
		pid = j.PID // the end is not seen
	case 1:
		m.programs = append(m.programs, j)
		j.Exec("execed", m.now)
		m.memory++
		return
	default:
		j.Exit(m.now)
	}
	m.memory++
	m.flush(false)
	m.now += 1e9
	m.begin(pid)
}

// flush publishes the open batches, and a heartbeat. Sometimes a batch is lost, or a ring was full.
func (m *machine) flush(heartbeat bool) {
	if m.memory > 0 {
		m.memory = 0
		m.send(nil)
	}
	for _, kind := range []schema.Kind{schema.KindLaunch, schema.KindCopy, schema.KindSync, schema.KindTensor} {
		if b := m.builders[kind]; b.Events() > 0 {
			m.send(b)
			b.Reset()
			clear(m.graphs)
		}
	}
	switch m.rng.IntN(150) {
	case 0:
		m.Header.Lost[schema.LossControlRing] += 3
	case 1:
		m.Header.Lost[schema.LossBulkRing] += 2
	case 2:
		m.Header.Lost[schema.LossTensorRing]++
	}
	if heartbeat {
		m.heartbeat()
	}
}

// send publishes a batch; nil: the one of memory.
func (m *machine) send(b *schema.Builder) {
	if b == nil {
		message := m.Message()
		header := m.Header
		header.Kind = schema.KindMemory
		m.publish(&header, message)
		return
	}
	header := m.Header
	m.seqs[b.Kind()]++
	if b.Kind() != schema.KindHost && m.rng.IntN(30) == 0 {
		m.seqs[b.Kind()] += 1 + m.rng.Uint64N(3) // batches are missing
	}
	header.Kind, header.Seq = b.Kind(), m.seqs[b.Kind()]
	m.publish(&header, b.Encode(&header))
}

func (m *machine) heartbeat() {
	b := schema.NewBuilder(schema.KindHost)
	b.Linux, b.Producer = "6.18", "v1"
	for n := range uint32(2) {
		b.GPU(schema.GPU{UUID: fmt.Sprintf("GPU-%s-%d", m.Header.Host, n), Ordinal: n, Name: "H200",
			Bus: fmt.Sprint("0000:0", n)})
	}
	b.Libraries = []schema.Library{{Path: "/lib/libcuda.so.1", Attached: 220 + m.rng.Uint32N(9), Stepped: 2,
		Absent: []string{"cuNew"}}}
	for _, j := range m.programs {
		b.Coverage = append(b.Coverage, schema.Coverage{Process: b.Process(j.Process.Process),
			Asked: m.rng.Uint32N(500), Outside: []string{"cuOdd"}, ExportTables: m.rng.Uint32N(3)})
	}
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync,
		schema.KindTensor} {
		seq := m.seqs[kind]
		if kind == schema.KindMemory {
			seq = m.Header.Seq
		}
		b.Ends = append(b.Ends, schema.End{Kind: kind, Seq: seq, Through: m.now})
	}
	m.send(b)
}
