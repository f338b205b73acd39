package export

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// life is memory of a process, by times of its host; until 0: never freed.
type life struct {
	host, comm  string
	pid, tid    uint32
	ptr, bytes  uint64
	class       string
	from, until schema.KTime
}

// fleet makes the calls of two hosts with two processes each, and keeps what a form must contain.
type fleet struct {
	t      *testing.T
	rng    *rand.Rand
	now    schema.KTime
	lives  []*life
	blocks []*life // of PyTorch's allocator
	counts map[string]int
	bytes  map[string]uint64 // by kind
	took   map[string]uint64 // ns, by kind
	data   [][]byte
	kinds  []schema.Kind
}

const rounds, perRound = 20, 30

// wallOffset is the wall clock minus the KTime of consumertest.
const wallOffset = 1_700_000_000_000_000_000

func newFleet(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := &fleet{t: t, rng: rand.New(rand.NewPCG(seed, 5)), now: 1e9, counts: map[string]int{},
		bytes: map[string]uint64{}, took: map[string]uint64{}}
	for _, name := range []string{"gpu-1", "gpu-2"} {
		h := consumertest.Memory(t, name)
		live := map[uint32][]*life{}
		for round := range rounds {
			for range perRound {
				f.memory(h, live)
			}
			header := h.Header
			header.Seq = uint64(round + 1)
			f.add(schema.KindMemory, h.Message())
			for _, kind := range []schema.Kind{schema.KindLaunch, schema.KindCopy, schema.KindSync, schema.KindTensor} {
				f.add(kind, f.others(&header, kind))
			}
		}
	}
	return f
}

func (f *fleet) add(kind schema.Kind, data []byte) {
	f.data, f.kinds = append(f.data, bytes.Clone(data)), append(f.kinds, kind)
}

func (f *fleet) count(kind string, bytes, took uint64) {
	f.counts[kind]++
	f.bytes[kind] += bytes
	f.took[kind] += took
}

func processOf(pid uint32) schema.Process {
	return schema.Process{PID: pid, Start: schema.KTime(pid), Comm: []string{"train", "serve"}[pid%2], User: "ann",
		Job: "slurm:1"}
}

func (f *fleet) memory(h *consumertest.Host, live map[uint32][]*life) {
	pid := 100 + f.rng.Uint32N(2)
	info := processOf(pid)
	p := h.Process(pid, info.Start, info.Comm)
	p.Job, p.User, p.GPU = info.Job, info.User, &schema.GPU{UUID: "GPU-" + h.Header.Host, Ordinal: 0}
	f.now += 1000 + schema.KTime(f.rng.Uint64N(1000))
	took, mine := 1+f.rng.Uint64N(500), live[pid]
	if len(mine) > 0 && f.rng.IntN(5) < 2 {
		l := mine[len(mine)-1]
		l.until, live[pid] = f.now, mine[:len(mine)-1]
		p.Free(pid, l.ptr, f.now, took)
		f.count("memory", 0, took)
		return
	}
	l := &life{h.Header.Host, info.Comm, pid, pid, uint64(f.now) << 20, 1 + f.rng.Uint64N(4<<20), "device",
		f.now + schema.KTime(took), 0}
	if f.rng.IntN(3) == 0 {
		l.class = "managed"
		p.Call("cuMemAllocManaged", pid, schema.Memory{Time: f.now, Duration: took, Ptr: l.ptr, Bytes: l.bytes})
	} else {
		p.Alloc(pid, l.ptr, l.bytes, f.now, took)
	}
	f.count("memory", l.bytes, took)
	live[pid], f.lives = append(mine, l), append(f.lives, l)
}

// others makes a batch of another kind.
func (f *fleet) others(header *schema.Header, kind schema.Kind) []byte {
	b := schema.NewBuilder(kind)
	for i := range perRound {
		f.now += 2000
		pid := 100 + f.rng.Uint32N(2)
		thread := b.Thread(schema.Thread{Process: b.Process(processOf(pid)), TID: pid, Comm: "main"})
		gpu := b.GPU(schema.GPU{UUID: "GPU-" + header.Host})
		took, amount := 1+f.rng.Uint64N(900), 1+f.rng.Uint64N(1<<20)
		switch kind {
		case schema.KindLaunch:
			call := b.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})
			shape := b.Shape(schema.LaunchShape{Call: call, Func: b.Func(schema.Func{Name: "_Z4gemmPf"}),
				Grid: [3]uint32{4, 2, 1}, Block: [3]uint32{256, 1, 1}})
			b.AddLaunch(&schema.Launch{Time: f.now, Thread: thread, GPU: gpu, Shape: shape,
				CUDAStream: b.CUDAStream(uint64(i % 2))})
			took, amount = 0, 0
		case schema.KindCopy:
			call := b.Call(schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD})
			b.AddCopy(&schema.Copy{Time: f.now, Duration: took, Thread: thread, GPU: gpu, Call: call, Bytes: amount,
				CUDAStream: b.CUDAStream(0)})
		case schema.KindSync:
			call := b.Call(schema.CallRef{Symbol: "cuStreamSynchronize", Op: schema.OpSync})
			b.AddSync(&schema.Sync{Time: f.now, Duration: took, Thread: thread, GPU: gpu, Call: call,
				CUDAStream: b.CUDAStream(0)})
			amount = 0
		case schema.KindTensor:
			amount, took = f.tensor(b, header.Host, pid, thread, gpu), 0
		}
		f.count(kind.String(), amount, took)
	}
	return b.Encode(header)
}

// tensor hands out a block in live memory of the process, or takes one back.
func (f *fleet) tensor(b *schema.Builder, host string, pid, thread, gpu uint32) uint64 {
	op, block := schema.OpBlockAlloc, (*life)(nil)
	for _, one := range f.blocks {
		if one.host == host && one.pid == pid && one.until == 0 && f.rng.IntN(2) == 0 {
			op, block, one.until = schema.OpBlockFree, one, f.now
			break
		}
	}
	for _, segment := range f.lives {
		if block == nil && segment.host == host && segment.pid == pid && segment.until == 0 && !f.used(segment) {
			block = &life{host: host, pid: pid, ptr: segment.ptr, bytes: 1 + segment.bytes/2, from: f.now}
			f.blocks = append(f.blocks, block)
		}
	}
	if block == nil { // the process has no memory: the block lies elsewhere
		block = &life{host: host, pid: pid, ptr: uint64(f.now) << 22, bytes: 512, from: f.now}
		f.blocks = append(f.blocks, block)
	}
	b.AddTensor(&schema.Tensor{Time: f.now, Thread: thread, GPU: gpu, Ptr: block.ptr, Bytes: block.bytes,
		Call: b.Call(schema.CallRef{Symbol: "reportMemoryUsage", Op: op})})
	return block.bytes
}

func (f *fleet) used(segment *life) bool {
	for _, b := range f.blocks {
		if b.until == 0 && b.host == segment.host && b.pid == segment.pid && b.ptr == segment.ptr {
			return true
		}
	}
	return false
}

// record writes the recording. Every message comes twice: the second one is a duplicate.
func (f *fleet) record() string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "run.gputap")
	out, err := os.Create(path)
	check(f.t, err)
	w, err := recording.NewWriter(out)
	check(f.t, err)
	check(f.t, w.AddStreams(recording.Selection{}, []recording.Stream{{Name: "GPUTAP_EV_000",
		State: recording.KnowledgeComplete}}))
	for i, data := range f.data {
		if i%10 == 0 {
			check(f.t, w.Flush())
		}
		for again := range 2 {
			check(f.t, w.Append(&recording.Message{Sequence: uint64(2*i + again + 1),
				Stored: time.Unix(0, wallOffset).Add(time.Duration(i) * time.Second), Data: data,
				Subject: schema.Subject(0, "test", consumertest.Decode(f.t, data).Host, f.kinds[i])}))
		}
	}
	check(f.t, w.Close())
	return path
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// typed runs gputap export.
func typed(t testing.TB, args ...string) (stdout []byte, err error) {
	t.Helper()
	var out bytes.Buffer
	p := &app.Process{Stdout: &out, Stderr: io.Discard, Log: discard()}
	cmd := Command(p)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.Bytes(), err
}

// exported runs gputap export, which must succeed.
func exported(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := typed(t, args...)
	if err != nil {
		t.Fatal(fmt.Errorf("%v: %w", args, err))
	}
	return out
}
