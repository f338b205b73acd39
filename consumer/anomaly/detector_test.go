package anomaly

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/schema"
)

const (
	mb     = 1_000_000
	mib    = 1 << 20
	second = schema.KTime(time.Second)
)

func apply(tb testing.TB, d *Detector, b *schema.Batch) {
	tb.Helper()
	if err := d.Apply(b); err != nil {
		tb.Fatal(err)
	}
}

// ordinary adds n allocations of 10 MB by four threads, one per second from second 1.
func ordinary(p *consumertest.Process, n int) {
	for i := range n {
		p.Alloc(uint32(100+i%4), 0x1000000+uint64(i)<<24, 10*mb, schema.KTime(i+1)*second, 500)
	}
}

func TestAllocSize(t *testing.T) {
	t.Parallel()
	big := func(p *consumertest.Process, bytes uint64, at schema.KTime) {
		p.Alloc(102, 0x7f0000000000, bytes, at*second, 500)
	}
	tests := []struct {
		name       string
		cfg        Config
		events     func(p *consumertest.Process)
		alerts     []uint64 // their bytes
		suppressed map[suppressed]uint64
	}{
		{"an outlier after 16", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			big(p, 2096*mib, 20)
		}, []uint64{2096 * mib}, nil},
		{"too few before it", Config{}, func(p *consumertest.Process) {
			ordinary(p, 15)
			big(p, 2096*mib, 20)
		}, nil, nil},
		{"far above the median, but small", Config{}, func(p *consumertest.Process) {
			for i := range uint64(20) {
				p.Alloc(1, 0x1000+i<<12, 512, second, 1)
			}
			big(p, 256*mib-1, 20)
		}, nil, nil},
		{"the smallest size that is judged", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			big(p, 256*mib, 20)
		}, []uint64{256 * mib}, nil},
		{"z just below 8: less than four times the median", Config{}, func(p *consumertest.Process) {
			for i := range uint64(16) {
				p.Alloc(1, 0x1000+i<<32, 100*mib, second, 1)
			}
			big(p, 399*mib, 20)
		}, nil, nil},
		{"z of 8: four times the median", Config{}, func(p *consumertest.Process) {
			for i := range uint64(16) {
				p.Alloc(1, 0x1000+i<<32, 100*mib, second, 1)
			}
			big(p, 400*mib, 20)
		}, []uint64{400 * mib}, nil},
		{"a wide spread raises the threshold", Config{}, func(p *consumertest.Process) {
			// log2 of the sizes is spread evenly over 10 … 25: the median is 17.5, the MAD 4, and 2 GiB is
			// (31-17.5)/5.93 = 2.3 of them above.
			for i := range uint64(16) {
				p.Alloc(1, 0x1000+i<<32, 1<<(10+i), second, 1)
			}
			big(p, 2<<30, 20)
		}, nil, nil},
		{"two distinct outliers are two alerts", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			big(p, 2096*mib, 20)
			big(p, 3000*mib, 21)
		}, []uint64{2096 * mib, 3000 * mib}, nil},
		{"outliers do not enter the baseline at first", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			for i := range schema.KTime(20) {
				big(p, 2096*mib, 20+i)
			}
		}, repeat(2096*mib, 20), nil},
		{"after 64 outliers the baseline accepts them", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			for i := range schema.KTime(200) {
				big(p, 2096*mib, 20+i)
			}
		}, repeat(2096*mib, outliersToAdopt+16), nil}, // half of the baseline is outliers once it accepted 16
		{"cool-down counts repeats, not other sizes", Config{AllocSizeCooldown: time.Minute},
			func(p *consumertest.Process) {
				ordinary(p, 16)
				big(p, 2096*mib, 20)
				big(p, 2096*mib, 30)
				big(p, 3000*mib, 31)
				big(p, 3000*mib, 95)
			}, []uint64{2096 * mib, 3000 * mib, 3000 * mib}, map[suppressed]uint64{{RuleAllocSize, "cooldown"}: 1}},
		{"warm-up", Config{Warmup: time.Minute}, func(p *consumertest.Process) {
			ordinary(p, 16)
			big(p, 2096*mib, 20)
			big(p, 2096*mib, 61)
		}, []uint64{2096 * mib}, map[suppressed]uint64{{RuleAllocSize, "warmup"}: 1}},
		{"host memory is not judged", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			p.Call("cuMemHostAlloc", 1, schema.Memory{Time: 20 * second, Ptr: 1, Bytes: 8 << 30})
		}, nil, nil},
		{"physical memory is judged", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			p.Create(1, 9, 8<<30, 20*second, 1)
		}, []uint64{8 << 30}, nil},
		{"a failed allocation is not judged", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			p.Fail("cuMemAlloc_v2", 1, 1, 8<<30, 20*second)
		}, nil, nil},
		{"a new image starts with an empty baseline", Config{}, func(p *consumertest.Process) {
			ordinary(p, 16)
			p.Exec("other", 19*second)
			big(p, 2096*mib, 20)
		}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := consumertest.Memory(t, "gpu-01")
			test.events(h.Process(42, 0, "train"))
			d := New(test.cfg)
			apply(t, d, h.Batch())
			var got []uint64
			for _, a := range d.Alerts() {
				got = append(got, a.Bytes)
			}
			if !reflect.DeepEqual(got, test.alerts) {
				t.Errorf("alerts of %d bytes, want %d", got, test.alerts)
			}
			if len(test.suppressed)+len(d.suppressed) > 0 && !reflect.DeepEqual(d.suppressed, test.suppressed) {
				t.Errorf("suppressed %v, want %v", d.suppressed, test.suppressed)
			}
		})
	}
}

func repeat(v uint64, n int) (all []uint64) {
	for range n {
		all = append(all, v)
	}
	return all
}

// Calls that allocate nothing are never judged, however many bytes they name.
func TestOtherCallsAreNotJudged(t *testing.T) {
	t.Parallel()
	d := New(Config{})
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(42, 1, "train")
	ordinary(p, 20)
	huge := schema.Memory{Time: 30 * second, Ptr: 0x7f0000000000, Bytes: 1 << 40}
	failed := huge
	failed.Result = outOfMemory
	for _, symbol := range []string{
		"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemImportFromShareableHandle", "cuIpcOpenMemHandle",
		"cuExternalMemoryGetMappedBuffer", "cuMulticastCreate", "cuMulticastBindMem", "cuMemPoolCreate",
		"cuMemPoolGetAttribute",
		"cuMemGetInfo_v2", "cuMemPrefetchAsync", "cuModuleLoadData", "cuCtxCreate_v4", "cuDevicePrimaryCtxRetain",
	} {
		p.Call(symbol, 1, huge).Call(symbol, 1, failed)
	}
	p.Record("cuMemAllocAsync", 1, huge).Record("cuMemAllocAsync", 1, failed)
	apply(t, d, h.Batch())
	if got := d.Alerts(); len(got) != 0 {
		t.Errorf("alerts %+v", got)
	}
	p.Call("cuMemHostRegister_v2", 1, failed)
	apply(t, d, h.Batch())
	if got := d.Alerts(); len(got) != 1 || !strings.Contains(got[0].Message, "host memory") {
		t.Errorf("a failed registration: %+v", got)
	}
}

func TestOOM(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p, q := h.Process(42, 0, "train"), h.Process(43, 0, "serve")
	p.Fail("cuMemAlloc_v2", 42, 2, 1<<30, 10*second)
	p.Fail("cuMemAlloc_v2", 42, 2, 1<<30, 20*second) // repeats the first
	p.Fail("cuMemAlloc_v2", 42, 2, 1<<29, 909*second)
	p.Fail("cuMemCreate", 42, 2, 1<<30, 21*second)   // another call
	q.Fail("cuMemAlloc_v2", 43, 2, 1<<30, 22*second) // another process
	q.Fail("cuMemFree_v2", 43, 2, 0, 23*second)      // not an allocation
	q.Fail("cuMemHostAlloc", 43, 2, 1<<40, 24*second)
	p.Fail("cuMemAlloc_v2", 42, 2, 1<<30, 911*second) // 15 minutes later
	d := New(Config{})
	apply(t, d, h.Batch())
	type raised struct {
		pid     uint32
		symbol  string
		repeats uint64
	}
	want := []raised{
		{42, "cuMemAlloc_v2", 2}, {42, "cuMemCreate", 0}, {43, "cuMemAlloc_v2", 0}, {43, "cuMemHostAlloc", 0},
		{42, "cuMemAlloc_v2", 0},
	}
	var got []raised
	for _, a := range d.Alerts() {
		got = append(got, raised{a.PID, a.Symbol, a.Repeats})
		if a.Rule != RuleOOM || a.Severity != Critical || a.Address != "" {
			t.Errorf("got %+v", a)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := d.suppressed[suppressed{RuleOOM, "cooldown"}]; n != 2 {
		t.Errorf("%d suppressed, want 2", n)
	}
}

// Seed 001's anomaly: four threads allocate 10 MB each time, one of them 2,096 MB once.
func TestSeedAnomaly(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	p := h.Process(603409, second/2, "python")
	p.UID, p.Container, p.GPU = 1000, "c0ffee", &schema.GPU{UUID: "GPU-1"}
	ordinary(p, 20)
	p.Alloc(100, 0x735467000000, 2096*mib, 30*second, 500)
	ordinary(p, 20)
	p.Fail("cuMemAlloc_v2", 101, 2, 40<<30, 60*second)
	var published []Alert
	d := New(Config{})
	d.cfg.OnAlert = func(a Alert) {
		published = append(published, a)
		_ = d.Alerts() // does not block: the lock is free
	}
	apply(t, d, h.Batch())
	if !reflect.DeepEqual(published, d.Alerts()) || d.history.total != 2 {
		t.Fatalf("published %+v, kept %+v", published, d.Alerts())
	}
	got, err := json.MarshalIndent(published, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	consumertest.GoldenFile(t, "testdata/alerts.json", append(got, '\n'))
	page := consumertest.Page(t, d)
	consumertest.GoldenFile(t, "testdata/metrics.txt", page)
	if problems, err := promlint.New(bytes.NewReader(page)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// The newest 1,000 alerts are kept, the total counts all, and series stay within their limit.
func TestAlertsAndSeriesKeepTheirLimits(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	const processes = 2500
	for i := range uint32(processes) {
		h.Process(100+i, 1, fmt.Sprintf("job-%d", i)).Fail("cuMemAlloc_v2", 1, 2, uint64(i), second)
	}
	d := New(Config{})
	apply(t, d, h.Batch())
	alerts := d.Alerts()
	if d.history.total != processes || len(alerts) != maxAlerts || alerts[0].Bytes != 1500 ||
		alerts[999].Bytes != 2499 {
		t.Errorf("total %d, kept %d, from %d to %d", d.history.total, len(alerts), alerts[0].Bytes,
			alerts[len(alerts)-1].Bytes)
	}
	text := string(consumertest.Page(t, d))
	if n := strings.Count(text, "gputap_anomaly_events_total{"); n != process.MaxSeries-1 {
		t.Errorf("%d series, want %d", n, process.MaxSeries-1)
	}
	if want := `comm="other",container="",hostname="",rule="oom",severity="critical"} 502`; !strings.Contains(text,
		want) {
		t.Errorf("no %s", want)
	}
}

func TestSameBytesSameAlerts(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-01")
	var messages [][]byte
	for n := range 30 {
		p := h.Process(uint32(42+n%3), 1, "train")
		ordinary(p, 40)
		p.Alloc(1, 0x5000, uint64(n+1)<<28, schema.KTime(50+n)*second, 1)
		p.Fail("cuMemAlloc_v2", 1, 2, 1<<40, schema.KTime(n)*100*second)
		messages = append(messages, h.Message())
	}
	var alerts [2][]Alert
	for i := range alerts {
		d := New(Config{})
		for _, m := range messages {
			apply(t, d, consumertest.Decode(t, m))
		}
		alerts[i] = d.Alerts()
	}
	if len(alerts[0]) == 0 || !reflect.DeepEqual(alerts[0], alerts[1]) {
		t.Errorf("%d and %d alerts that differ", len(alerts[0]), len(alerts[1]))
	}
}

// BenchmarkApply applies encoded batches of 4,096 allocations and frees, decoding included. In the variant large, the
// rules judge every 64th allocation.
func BenchmarkApply(b *testing.B) {
	for _, large := range []bool{false, true} {
		b.Run(map[bool]string{false: "ordinary", true: "large"}[large], func(b *testing.B) {
			h := consumertest.Memory(b, "gpu-01")
			p := h.Process(42, 1, "train")
			for i := range uint64(2048) {
				bytes := (i%1000 + 1) << 10
				if large && i%64 == 63 {
					bytes = minBytes + i
				}
				p.Alloc(uint32(i%4), 0x1000+i<<12, bytes, schema.KTime(i*1000), 300)
				p.Free(uint32(i%4), 0x1000+i<<12, schema.KTime(i*1000+500), 300)
			}
			message, decoder, batch := h.Message(), schema.NewDecoder(), &schema.Batch{}
			d := New(Config{AllocSizeCooldown: time.Hour})
			events := 0
			for b.Loop() {
				if err := decoder.Decode(message, batch); err != nil {
					b.Fatal(err)
				}
				apply(b, d, batch)
				events += batch.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
