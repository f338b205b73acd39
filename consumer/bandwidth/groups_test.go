package bandwidth

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// truth is computed from the events one by one.
type truth struct {
	groups map[string]uint64 // by process, group, use and figure
	dists  map[string]uint64 // by histogram, labels and classic bucket
}

// TestGroupsAndHistograms compares every figure with the list of events, in large batches and in batches of one event,
// which take another way.
func TestGroupsAndHistograms(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 7, 3000} {
		r, m := rand.New(rand.NewPCG(1, uint64(size))), New(Config{})
		want := truth{map[string]uint64{}, map[string]uint64{}}
		for left := 6000; left > 0; left -= size {
			b := schema.NewBuilder(schema.KindCopy)
			for range min(size, left) {
				want.add(r, b)
			}
			_ = m.Apply(consumertest.Decode(t, bytes.Clone(b.Encode(&schema.Header{Host: "h", BootID: "b"}))))
		}
		if got := groupsOf(m); !maps.Equal(got, want.groups) {
			t.Errorf("batches of %d: groups differ: %v", size, difference(got, want.groups))
		}
		if got := distributionsOf(t, m); !maps.Equal(got, want.dists) {
			t.Errorf("batches of %d: histograms differ: %v", size, difference(got, want.dists))
		}
		for _, p := range m.Report() {
			for _, c := range p.Calls {
				if c.Op == schema.OpCopied || c.Op == schema.OpCopiedBehind {
					t.Errorf("the end of a copy counts as a call: %+v", c)
				}
			}
		}
	}
}

func difference(got, want map[string]uint64) (list []string) {
	for k, n := range want {
		if got[k] != n && len(list) < 8 {
			list = append(list, fmt.Sprint(k, ": got ", got[k], ", want ", n))
		}
	}
	for k, n := range got {
		if want[k] == 0 && n != 0 && len(list) < 8 {
			list = append(list, fmt.Sprint(k, ": got ", n, ", want none"))
		}
	}
	return list
}

// add adds a random event to a batch and to the truth.
func (w *truth) add(r *rand.Rand, b *schema.Builder) {
	pid, gpu := 1+r.Uint32N(2), r.Uint32N(3)
	comm := fmt.Sprint("comm", pid)
	symbol := []string{htod, dtoh, htodAsync, dtodAsync, "cuMemsetD8_v2"}[r.IntN(5)]
	ref := call(symbol).Ref()
	if ref.Op == schema.OpCopyAsync {
		ref.Op = []schema.Op{schema.OpCopyAsync, schema.OpCopied, schema.OpCopiedBehind, schema.OpRecord}[r.IntN(4)]
	}
	e := schema.Copy{
		Bytes: r.Uint64N(1<<r.Uint64N(30)) + r.Uint64N(2), Duration: r.Uint64N(1 << r.Uint64N(34)),
		Result: r.Uint32N(9) / 8, HostMem: schema.HostMem(r.Uint32N(4)), Call: b.Call(ref), CUDAStream: b.CUDAStream(0),
		Thread: b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: pid, Comm: comm}), TID: r.Uint32N(2)}),
	}
	if r.IntN(3) == 0 {
		e.Bytes = 1 << r.Uint64N(30) // the end of a bucket
	}
	if ref.Op == schema.OpCopied || ref.Op == schema.OpCopiedBehind {
		e.Result = 0
	}
	uuid := ""
	if gpu > 0 {
		uuid = fmt.Sprint("GPU-", gpu)
		e.GPU = b.GPU(schema.GPU{UUID: uuid, Ordinal: gpu - 1})
	}
	b.AddCopy(&e)
	if e.Result != 0 || ref.Op == schema.OpRecord || ref.Op == schema.OpSet {
		return
	}
	hostMem := []string{"unknown", "pageable", "pinned", "unknown"}[e.HostMem]
	class, limit := ">16MiB", uint64(0)
	for _, c := range []struct {
		name  string
		bytes uint64
	}{{"<=16MiB", 16 << 20}, {"<=1MiB", 1 << 20}, {"<=64KiB", 64 << 10}, {"<=4KiB", 4 << 10}} {
		if limit = c.bytes; e.Bytes <= limit {
			class = c.name
		}
	}
	use := map[schema.Op]string{schema.OpCopy: "sync", schema.OpCopyAsync: "async", schema.OpCopied: "ended",
		schema.OpCopiedBehind: "behind"}[ref.Op]
	key := fmt.Sprintf("%d/%s/%s/%s/%s/%s ", pid, uuid, ref.Direction, class, hostMem, use)
	w.groups[key+"calls"]++
	w.groups[key+"bytes"] += e.Bytes
	if use != "async" {
		w.groups[key+"ns"] += e.Duration
	}
	if use != "sync" && use != "async" {
		return
	}
	kind := map[schema.Direction]string{schema.HtoD: "h2d", schema.DtoH: "d2h", schema.DtoD: "d2d"}[ref.Direction]
	labels := comm + kind + use
	w.observe("gputap_cuda_memcpy_size_bytes"+labels, bytePowers, float64(e.Bytes))
	w.observe("gputap_cuda_memcpy_call_seconds"+labels, secondPowers, float64(e.Duration)/1e9)
	if use == "sync" && e.Bytes >= 64<<10 && e.Duration > 0 {
		ordinal := ""
		if gpu > 0 {
			ordinal = fmt.Sprint(gpu - 1)
		}
		w.observe("gputap_cuda_memcpy_throughput_bytes_per_second"+uuid+ordinal+"h"+kind, speedPowers,
			float64(e.Bytes)/(float64(e.Duration)/1e9))
	}
}

func (w *truth) observe(name string, powers []int, v float64) {
	for _, e := range powers {
		if v <= math.Ldexp(1, e) {
			w.dists[fmt.Sprint(name, " ", e)]++
		}
	}
	w.dists[name+" count"]++
}

func groupsOf(m *Meter) map[string]uint64 {
	got := map[string]uint64{}
	for _, p := range m.Report() {
		for _, g := range p.Groups {
			for use, u := range map[string]Use{"sync": g.Sync, "async": g.Async, "ended": g.Ended, "behind": g.Behind} {
				key := fmt.Sprintf("%d/%s/%s/%s/%s/%s ", p.ID.PID, g.GPU, g.Direction, g.Size, g.HostMem, use)
				for figure, n := range map[string]uint64{"calls": u.Calls, "bytes": u.Bytes, "ns": u.NS} {
					if n > 0 || u.Calls > 0 && (figure != "ns" || use != "async") {
						got[key+figure] = n
					}
				}
			}
		}
	}
	return got
}

func distributionsOf(t *testing.T, m *Meter) map[string]uint64 {
	t.Helper()
	got := map[string]uint64{}
	metrics := make(chan prometheus.Metric, 1000)
	m.Collect(metrics)
	close(metrics)
	for metric := range metrics {
		for name, d := range map[string]struct {
			desc   *prometheus.Desc
			powers []int
		}{
			"gputap_cuda_memcpy_size_bytes":                  {copySizes, bytePowers},
			"gputap_cuda_memcpy_call_seconds":                {callSeconds, secondPowers},
			"gputap_cuda_memcpy_throughput_bytes_per_second": {throughput, speedPowers},
		} {
			if metric.Desc() != d.desc {
				continue
			}
			var out dto.Metric
			if err := metric.Write(&out); err != nil {
				t.Fatal(err)
			}
			for _, l := range out.GetLabel() {
				name += l.GetValue()
			}
			for i, b := range out.GetHistogram().GetBucket() {
				if b.GetCumulativeCount() > 0 {
					got[fmt.Sprint(name, " ", d.powers[i])] = b.GetCumulativeCount()
				}
			}
			got[name+" count"] = out.GetHistogram().GetSampleCount()
			if len(out.GetHistogram().GetBucket()) > 12 {
				t.Errorf("%s has too many classic buckets", name)
			}
		}
	}
	return got
}
