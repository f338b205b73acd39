package fold

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/page"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/metric"
)

const (
	minute = schema.KTime(60e9)
	mib    = 1 << 20
	end    = 45 * minute
)

// machine is a host with one process on one GPU that does a little of everything.
type machine struct {
	*consumertest.Host
	p   *consumertest.Process
	seq map[schema.Kind]uint64
}

func newMachine(t *testing.T, cluster string) *machine {
	m := &machine{Host: consumertest.Memory(t, "gpu-01"), seq: map[schema.Kind]uint64{}}
	m.Header.Cluster = cluster
	m.p = m.Process(42, minute, "python3")
	m.p.Pod, m.p.Container, m.p.Unit = "6f1d1a2e-0000-4000-8000-000000000001", "c0ffee", "kubelet.service"
	m.p.User, m.p.Job = "ann", "slurm:4711"
	m.p.GPU = &schema.GPU{UUID: "GPU-1", Ordinal: 0}
	return m
}

// other encodes a batch of another kind than memory. add gets the builder, and the process's thread and GPU.
func (m *machine) other(kind schema.Kind, add func(b *schema.Builder, thread, gpu uint32)) []byte {
	b := schema.NewBuilder(kind)
	add(b, b.Thread(schema.Thread{Process: b.Process(m.p.Process), TID: 42, Comm: m.p.Comm}), b.GPU(*m.p.GPU))
	return m.encode(kind, b)
}

func (m *machine) encode(kind schema.Kind, b *schema.Builder) []byte {
	header := m.Header
	m.seq[kind]++
	header.Seq = m.seq[kind]
	return slices.Clone(b.Encode(&header))
}

// memory leaks 32 MiB a minute, frees 4 MiB, fails twice, and ends a process with 8 MiB. Another process makes equal
// allocations and an odd one, and a third makes equal ones and takes half of the GPU; then both end, too.
func (m *machine) memory() (batches [][]byte) {
	m.p.Context = 7
	m.p.RetainContext(7, minute).Alloc(42, 1<<40, 4*mib, minute, 1).Free(42, 1<<40, 2*minute, 1).
		Free(42, 3<<40, 2*minute+1, 1).Open(42, 4<<40, 77, 2*minute+2, 1).PoolInfo(9, 5, 3*mib, 2*minute+3).
		Fail("cuMemAlloc_v2", 42, 2, 80<<30, 2*minute+4).MemInfo(50*mib, 80<<30, 2*minute+5)
	gone := m.Process(43, minute, "python3")
	gone.Pod, gone.GPU = "other-pod", m.p.GPU
	gone.Alloc(43, 5<<40, 8*mib, 2*minute, 1).Fail("cuMemAlloc_v2", 43, 2, 80<<30, 2*minute+6).Exit(3 * minute)
	for at := 3 * minute; at < end; at += minute {
		m.p.Alloc(42, 6<<40+uint64(at), 32*mib, at, 1)
		batches = append(batches, slices.Clone(m.Message()), m.heartbeat(at+1))
	}
	for i, size := range []uint64{2 << 30, 80e9} {
		p := m.Process(uint32(44+i), 30*minute, "serve")
		p.GPU = &schema.GPU{UUID: "GPU-1", Bytes: 150e9}
		for i := range uint64(20) {
			p.Alloc(44, 7<<40+i<<24, 10e6, end+schema.KTime(i), 1)
		}
		p.Alloc(44, 8<<40, size, end+minute, 1)
	}
	batches = append(batches, slices.Clone(m.Message()), m.heartbeat(end+2*minute))
	m.Process(44, 30*minute, "serve").Exit(end + 2*minute + 1)
	m.Process(45, 30*minute, "serve").Exit(end + 2*minute + 1)
	m.late()
	return append(batches, slices.Clone(m.Message()), m.heartbeat(end+3*minute))
}

// late adds a process that ran before the producer, frees 2 GiB before it ends, and does not free 1 GiB.
func (m *machine) late() {
	p := m.Process(46, minute, "late")
	p.Late, p.GPU = true, m.p.GPU
	p.Alloc(46, 1<<41, 1<<30, 2*minute, 1).Alloc(46, 2<<41, 2<<30, 2*minute, 1).
		Free(46, 2<<41, end+2*minute, 1).Exit(end + 2*minute + 1)
}

func (m *machine) heartbeat(at schema.KTime) []byte {
	b := schema.NewBuilder(schema.KindHost)
	b.Coverage = []schema.Coverage{{Process: b.Process(m.p.Process), Outside: []string{"cuNew"}}}
	b.Libraries = []schema.Library{{Path: "/lib/libcuda.so.1", Attached: 220}}
	b.GPU(schema.GPU{UUID: "GPU-1", Ordinal: 3, Name: "NVIDIA H200", Bus: "0000:06:00.0", Bytes: 150e9})
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		b.Ends = append(b.Ends, schema.End{Kind: kind, Seq: max(m.Header.Seq, m.seq[kind]), Through: at})
	}
	return m.encode(schema.KindHost, b)
}

func (m *machine) work() [][]byte {
	tensors := m.other(schema.KindTensor, func(b *schema.Builder, thread, gpu uint32) {
		call := b.Call(schema.CallRef{Symbol: "report", Op: schema.OpBlockAlloc})
		b.AddTensor(&schema.Tensor{Time: minute, Thread: thread, GPU: gpu, Ptr: 1, Bytes: 3 * mib, Call: call,
			Allocated: 3 * mib, Reserved: 20 * mib})
	})
	launches := m.other(schema.KindLaunch, func(b *schema.Builder, thread, gpu uint32) {
		graph := b.Func(schema.Func{Handle: 9})
		b.Graph(schema.Graph{Func: graph, Nodes: []schema.Node{{Func: b.Func(schema.Func{Name: "node"}), Count: 3}}})
		for i, call := range []schema.CallRef{
			{Symbol: "cuLaunchKernel", Op: schema.OpLaunch}, {Symbol: "cuGraphLaunch", Op: schema.OpGraphLaunch},
		} {
			function := []uint32{b.Func(schema.Func{Name: "_Z4axpyIfEvT_PS0_S1_i"}), graph}[i]
			b.AddLaunch(&schema.Launch{Time: 2 * minute, Thread: thread, GPU: gpu, CUDAStream: b.CUDAStream(0),
				Shape: b.Shape(schema.LaunchShape{Call: b.Call(call), Func: function, Grid: [3]uint32{8, 1, 1},
					Block: [3]uint32{256, 1, 1}})})
		}
	})
	copies := m.other(schema.KindCopy, func(b *schema.Builder, thread, gpu uint32) {
		for _, ref := range []schema.CallRef{
			{Symbol: "cuMemcpyHtoD_v2", Op: schema.OpCopy, Direction: schema.HtoD},
			{Symbol: "cuMemcpyDtoHAsync_v2", Op: schema.OpCopyAsync, Direction: schema.DtoH},
			{Symbol: "cuMemcpyDtoHAsync_v2", Op: schema.OpCopied, Direction: schema.DtoH},
			{Symbol: "cuMemsetD8_v2", Op: schema.OpSet},
		} {
			b.AddCopy(&schema.Copy{Time: 2 * minute, Duration: 1e6, Thread: thread, GPU: gpu, Call: b.Call(ref),
				Bytes: mib, CUDAStream: b.CUDAStream(0)})
		}
	})
	waits := m.other(schema.KindSync, func(b *schema.Builder, thread, gpu uint32) {
		b.AddSync(&schema.Sync{Time: 2 * minute, Duration: 5e8, Thread: thread, GPU: gpu, CUDAStream: b.CUDAStream(0),
			Call: b.Call(schema.CallRef{Symbol: "cuCtxSynchronize", Op: schema.OpSync})})
	})
	return [][]byte{tensors, launches, copies, waits}
}

// pageOf returns the page of a fold that has applied what two hosts of the same name did.
func pageOf(t *testing.T, e Entry) string {
	f := e.New()
	for _, cluster := range []string{"east", "west"} {
		m := newMachine(t, cluster)
		for _, message := range append(m.work(), m.memory()...) {
			if b := consumertest.Decode(t, message); slices.Contains(f.Kinds(), b.Kind) {
				consumertest.Take(t, f, consumertest.Steps(message)...)
			}
		}
	}
	return string(consumertest.Page(t, page.New(f.Name(),
		func() []prometheus.Collector { return []prometheus.Collector{f} })))
}

// TestPages compares the page of every consumer with a golden page, with the labels of the process, with what its calls
// add up to, and with the table: every family of a consumer must be on a page.
func TestPages(t *testing.T) {
	t.Parallel()
	const who = `UUID="GPU-1",cluster="east",comm="python3",container="c0ffee",gpu="0",hostname="gpu-01",` +
		`job="slurm:4711",%spod="6f1d1a2e-0000-4000-8000-000000000001",%sunit="kubelet.service",user="ann"} %s`
	facts := map[string][]string{
		"leak": {
			// 42 minutes of 32 MiB
			"gputap_cuda_memory_live_bytes{" + fmt.Sprintf(who, `kind="device",pid="42",`, "", "1.409286144e+09"),
			"gputap_cuda_memory_allocated_bytes_total{" + fmt.Sprintf(who, `kind="device",`, "", "1.413480448e+09"),
			"gputap_cuda_memory_freed_bytes_total{" + fmt.Sprintf(who, `kind="device",`, "", "4.194304e+06"),
			"gputap_leak_verdicts{" + fmt.Sprintf(who, `pid="42",`, `state="suspect",`, "1"),
			"gputap_leak_growth_bytes_per_second{" + fmt.Sprintf(who, `pid="42",`, "", "559240.5"),
			"gputap_torch_cached_bytes{" + fmt.Sprintf(who, `pid="42",`, "", "1.7825792e+07"),
			`gputap_consumer_state_processes{consumer="leak"} 10`, // five for each cluster
			`gputap_consumer_state_allocations{consumer="leak"} 84`,
			`gputap_consumer_state_allocations{consumer="tensor"} 2`,
			`gputap_gpu_memory_bytes{UUID="GPU-1",cluster="east",gpu="3",hostname="gpu-01"} 1.5e+11`,
		},
		"launch": {
			"gputap_cuda_kernel_launches_total{" + fmt.Sprintf(who, "", "", "4"),
			`gputap_cuda_kernel_launches_by_name_total{comm="python3",kernel="axpy"} 2`,
		},
		"bandwidth": {
			"gputap_cuda_memcpy_bytes_total{" + fmt.Sprintf(who, `kind="h2d",mode="sync",`, "", "1.048576e+06"),
			"gputap_cuda_sync_seconds_total{" + fmt.Sprintf(who, "", "", "0.5"),
		},
		"anomaly": {`cluster="east",comm="python3",container="",gpu="",hostname="gpu-01",job="",pod="other-pod",rule="oom"`},
	}
	shown := map[string]bool{}
	for _, e := range All() {
		page := pageOf(t, e)
		consumertest.GoldenFile(t, filepath.Join("testdata", e.Name()+".prom"), []byte(page))
		for _, fact := range facts[e.Name()] {
			if !strings.Contains(page, fact) {
				t.Errorf("%s: no %s", e.Name(), fact)
			}
		}
		clusters := map[string]int{}
		for line := range strings.Lines(page) {
			family, of, labelled := strings.Cut(line, "{")
			if family, _, plain := strings.Cut(line, " "); plain && !labelled {
				shown[family] = true
			}
			if labelled {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					shown[strings.TrimSuffix(family, suffix)] = true
				}
				shown[family] = true
				for _, cluster := range []string{"east", "west"} {
					if strings.Contains(of, fmt.Sprintf("cluster=%q", cluster)) {
						clusters[cluster]++
					}
				}
			}
		}
		if clusters["east"] == 0 || clusters["east"] != clusters["west"] {
			t.Errorf("%s: series by cluster: %v", e.Name(), clusters)
		}
		promtool(t, page)
	}
	for _, f := range metric.Families {
		if slices.Contains([]metric.Component{metric.Leak, metric.Launch, metric.Bandwidth, metric.Anomaly},
			f.Component) && !shown[f.Name] {
			t.Errorf("%s is in the table and on no page", f.Name)
		}
	}
	if t.Failed() {
		t.Logf("shown: %v", slices.Sorted(maps.Keys(shown)))
	}
}

// promtool checks a page by the rules of Prometheus.
func promtool(t *testing.T, page string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Log("the page is not checked, there is no promtool: apt-get install prometheus")
		return
	}
	check := exec.Command(program, "check", "metrics")
	check.Stdin = bytes.NewReader([]byte(page))
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v: %s", err, out)
	}
}
