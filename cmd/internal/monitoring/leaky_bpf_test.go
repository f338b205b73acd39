//go:build bpf

package monitoring

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// The process of a host that leaks: leakMinutes allocations of leakBytes, one a minute, until now.
const (
	leakCluster = "lab"
	leakHost    = "gpu-leak"
	leakComm    = "train"
	leakPID     = 42
	leakUser    = "ann"
	leakJob     = "slurm:7.0"
	leakMinutes = 40
	leakBytes   = 32 << 20
)

// leaky publishes the batches of the leaking host. Before it ran out of memory, its process launched a kernel and a
// graph, copied, waited and used PyTorch.
type leaky struct {
	t       *testing.T
	js      jetstream.JetStream
	subject func(schema.Kind) string
	host    *consumertest.Host
	process *consumertest.Process
	seqs    [schema.NumKinds]uint64
}

func publishLeaky(t *testing.T, js jetstream.JetStream, shard func(cluster, host string) int) {
	t.Helper()
	const boot = 1000 * time.Second // when the process started
	h := consumertest.Memory(t, leakHost)
	h.Header.Cluster = leakCluster
	h.Header.ClockOffset = time.Now().Add(-leakMinutes*time.Minute - boot).UnixNano()
	p := h.Process(leakPID, schema.KTime(boot), leakComm)
	p.User, p.Job = leakUser, leakJob
	p.GPU = &schema.GPU{UUID: "GPU-1", Bytes: 80 << 30}
	l := &leaky{t: t, js: js, host: h, process: p, subject: func(k schema.Kind) string {
		return schema.Subject(shard(leakCluster, leakHost), leakCluster, leakHost, k)
	}}
	at := schema.KTime(boot + time.Second)
	l.work(at)
	for minute := range schema.KTime(leakMinutes) {
		p.Alloc(leakPID, uint64(minute+1)<<32, leakBytes, at, 1000)
		if minute == leakMinutes-1 {
			p.MemInfo(70<<30, 80<<30, at+1e6).Fail("cuMemAlloc_v2", leakPID, 2, 40<<30, at+2e6)
		}
		l.publish(schema.KindMemory, h.Message())
		at += schema.KTime(time.Minute)
		l.heartbeat(at - schema.KTime(2*time.Second))
	}
}

// work publishes one batch of each other kind, with a call of each sort.
func (l *leaky) work(at schema.KTime) {
	launches := schema.NewBuilder(schema.KindLaunch)
	thread, gpu := l.thread(launches)
	graph := launches.Func(schema.Func{Handle: 9})
	launches.Graph(schema.Graph{Func: graph, Nodes: []schema.Node{
		{Func: launches.Func(schema.Func{Name: "node"}), Count: 3}}})
	for symbol, function := range map[string]uint32{
		"cuLaunchKernel": launches.Func(schema.Func{Name: "gemm"}), "cuGraphLaunch": graph,
	} {
		op := schema.OpLaunch
		if function == graph {
			op = schema.OpGraphLaunch
		}
		shape := launches.Shape(schema.LaunchShape{Call: launches.Call(schema.CallRef{Symbol: symbol, Op: op}),
			Func: function, Grid: [3]uint32{132, 1, 1}, Block: [3]uint32{256, 1, 1}})
		launches.AddLaunch(&schema.Launch{Time: at, Thread: thread, GPU: gpu, Shape: shape,
			CUDAStream: launches.CUDAStream(0)})
	}
	l.send(launches)

	copies := schema.NewBuilder(schema.KindCopy)
	thread, gpu = l.thread(copies)
	copies.AddCopy(&schema.Copy{Time: at, Duration: 1000, Thread: thread, GPU: gpu, Bytes: 1 << 20,
		CUDAStream: copies.CUDAStream(0), Call: copies.Call(
			schema.CallRef{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD})})
	copies.AddCopy(&schema.Copy{Time: at, Duration: 1000, Thread: thread, GPU: gpu, Bytes: 1 << 20,
		CUDAStream: copies.CUDAStream(0), Call: copies.Call(schema.CallRef{Symbol: "cuMemsetD8_v2", Op: schema.OpSet})})
	l.send(copies)

	waits := schema.NewBuilder(schema.KindSync)
	thread, gpu = l.thread(waits)
	waits.AddSync(&schema.Sync{Time: at, Duration: 1000, Thread: thread, GPU: gpu, CUDAStream: waits.CUDAStream(0),
		Call: waits.Call(schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync})})
	l.send(waits)

	tensors := schema.NewBuilder(schema.KindTensor)
	thread, gpu = l.thread(tensors)
	tensors.AddTensor(&schema.Tensor{Time: at, Thread: thread, GPU: gpu, Ptr: 1 << 40, Bytes: 1 << 20,
		Call:      tensors.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc}),
		Allocated: 1 << 20, Reserved: 2 << 20})
	l.send(tensors)
}

func (l *leaky) thread(b *schema.Builder) (thread, gpu uint32) {
	p := b.Process(l.process.Process)
	return b.Thread(schema.Thread{Process: p, TID: leakPID, Comm: leakComm}), b.GPU(*l.process.GPU)
}

// heartbeat completes all kinds up to a time.
func (l *leaky) heartbeat(through schema.KTime) {
	b := schema.NewBuilder(schema.KindHost)
	b.GPU(*l.process.GPU)
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		b.Ends = append(b.Ends, schema.End{Kind: kind, Seq: l.seqs[kind], Through: through})
	}
	l.send(b)
}

func (l *leaky) send(b *schema.Builder) {
	header := l.host.Header
	header.Seq = l.seqs[b.Kind()] + 1
	l.publish(b.Kind(), b.Encode(&header))
}

func (l *leaky) publish(kind schema.Kind, message []byte) {
	l.t.Helper()
	l.seqs[kind]++
	_, err := l.js.Publish(l.t.Context(), l.subject(kind), message)
	check(l.t, err)
}
