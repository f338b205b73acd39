package anomaly

import (
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly/rule"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

const (
	outOf     = "oom critical" + firing
	outOfOver = "oom critical" + cleared
	again     = "oom_recovered info" + firing
	againOver = "oom_recovered info" + cleared
)

func (w *world) fail(p *consumertest.Process, bytes uint64, at float64) {
	p.Fail("cuMemAlloc_v2", p.PID, 2, bytes, ktime(at))
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{"the process ends", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			p.Exit(ktime(11))
			w.tick(20, 40)
		}, []string{outOf}},
		{"the process ends, and five minutes pass", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			p.Exit(ktime(11))
			w.tick(20, 320)
		}, []string{outOf, outOfOver}},
		{"ten seconds pass", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			w.tick(20, 30)
		}, []string{outOf}},
		{"it goes on failing, in one alert", everything, func(w *world, p *consumertest.Process) {
			for i := range 60 {
				w.fail(p, 40*gib, 10+5*float64(i))
				w.tick(10+5*float64(i), 10+5*float64(i))
			}
			w.tick(310, 340)
		}, []string{outOf}},
		{"it succeeds after a minute", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			w.tick(20, 60)
			w.alloc(p, 40*gib, 70)
			w.tick(80, 80)
		}, []string{outOf, outOfOver}},
		{"far smaller allocations succeed", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			w.allocs(p, 20, 20*mib, 11)
			w.tick(20, 40)
		}, []string{outOf}},
		{"it goes on launching kernels", everything, func(w *world, p *consumertest.Process) {
			w.launch(p, 5, 9)
			w.fail(p, 40*gib, 10)
			w.launch(p, 5, 12)
			w.tick(20, 40)
		}, []string{again}},
		{"it launched kernels only before", everything, func(w *world, p *consumertest.Process) {
			w.launch(p, 5, 9)
			w.fail(p, 40*gib, 10)
			w.tick(20, 40)
		}, []string{outOf}},
		{"memory of another GPU succeeds", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			p.GPU = &schema.GPU{UUID: "GPU-2", Ordinal: 1}
			w.alloc(p, 4*gib, 12)
			w.tick(20, 40)
		}, []string{outOf}},
		{"pinned memory of the host", everything, func(w *world, p *consumertest.Process) {
			p.Fail("cuMemHostAlloc", 1, 2, 1<<40, ktime(10))
			w.alloc(p, 4*gib, 12)
			w.tick(20, 40)
		}, []string{outOf}},
		{"a second time within a quarter of an hour", everything, func(w *world, p *consumertest.Process) {
			for _, at := range []float64{10, 500} {
				w.fail(p, 40*gib, at)
				w.tick(at+10, at+20)
				w.alloc(p, 40*gib, at+30)
			}
			w.tick(600, 700)
		}, []string{outOf, outOfOver}},
		{"two GPUs", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			p.GPU = &schema.GPU{UUID: "GPU-2", Ordinal: 1}
			w.fail(p, 4*gib, 10)
			w.tick(20, 30)
		}, []string{outOf, outOf}},
		{"the process starts itself again by exec", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			p.Exec("train", ktime(11))
			w.tick(20, 320)
		}, []string{outOf, outOfOver}},
		{"it succeeds after an exec", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			p.Exec("train", ktime(11))
			w.tick(20, 20)
			w.alloc(p, 40*gib, 21)
			w.tick(30, 40)
		}, []string{outOf, outOfOver}},
		{"the process is excluded, and goes on failing", rule.Config{Mode: rule.Alert,
			Exclude: alert.Exclude{Comm: []string{"train"}}}, func(w *world, p *consumertest.Process) {
			for i := range 6 {
				w.fail(p, 40*gib, 10+40*float64(i))
				w.tick(20+40*float64(i), 40+40*float64(i))
			}
		}, nil},
		{"events were lost meanwhile", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 40*gib, 10)
			w.flush()
			w.host.Header.Lost[schema.LossControlRing]++
			w.tick(20, 30)
		}, []string{"oom warning" + firing}},
	} {
		s.test(t)
	}
}

// Failures that a program recovers from, and failures of other kinds.
func TestRecoveredOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, s := range []scenario{
		{"the same request succeeds after the cache was freed", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			w.alloc(p, 4*gib, 10.1)
			w.tick(20, 60)
		}, []string{again}},
		{"and a minute passes", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			w.alloc(p, 4*gib, 10.1)
			w.tick(20, 80)
		}, []string{again, againOver}},
		{"half the batch succeeds", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			w.alloc(p, 2*gib, 12)
			w.tick(20, 60)
		}, []string{again}},
		{"ever smaller requests until one succeeds", everything, func(w *world, p *consumertest.Process) {
			for i := range 6 {
				w.fail(p, 64*gib>>i, 10+float64(i))
			}
			w.alloc(p, gib, 17)
			w.tick(30, 60)
		}, []string{again}},
		{"a small request", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4096, 10)
			w.alloc(p, 4096, 11)
			w.tick(20, 60)
		}, []string{again}},
		{"pinned memory", everything, func(w *world, p *consumertest.Process) {
			p.Fail("cuMemHostAlloc", 1, 2, gib, ktime(10))
			p.Call("cuMemHostAlloc", 1, schema.Memory{Time: ktime(11), Ptr: 1 << 30, Bytes: gib})
			w.tick(20, 60)
		}, []string{again}},
		{"the process ends after it recovered", everything, func(w *world, p *consumertest.Process) {
			w.fail(p, 4*gib, 10)
			w.alloc(p, 4*gib, 10.1)
			p.Exit(ktime(12))
			w.tick(20, 60)
		}, []string{again}},
		{"another error", everything, func(w *world, p *consumertest.Process) {
			p.Fail("cuMemAlloc_v2", 1, 1, gib, ktime(10))
			p.Exit(ktime(12))
			w.tick(20, 60)
		}, nil},
		{"a free that fails", everything, func(w *world, p *consumertest.Process) {
			p.Fail("cuMemFree_v2", 1, 2, 0, ktime(10))
			p.Exit(ktime(12))
			w.tick(20, 60)
		}, nil},
	} {
		s.test(t)
	}
}

// Calls that allocate nothing are never judged, however many bytes they name.
func TestOtherCallsAreNotJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	p := w.process(42, "train")
	w.allocs(p, 20, 10*mb, 2)
	huge := schema.Memory{Time: ktime(5), Ptr: 0x7f0000000000, Bytes: 1 << 40}
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
	w.tick(10, 60)
	w.want()
}

// The message names the processes that held most of the GPU when the driver refused, whatever was freed or allocated
// until the alert fires. It is the same after a restart meanwhile.
func TestOutOfMemoryNamesTheHolders(t *testing.T) {
	t.Parallel()
	const held, ends = " succeeded for 10s. At the refusal it held ", " succeeded before the process ended. At the " +
		"refusal it held "
	for _, row := range []struct {
		name     string
		train    uint64 // held by the process that fails
		others   bool
		ended    bool
		reported bool // PyTorch reports its blocks
		want     string
	}{
		{"it runs on", gib, true, false, false, held + "1 GiB of GPU-1 itself; the largest other holders were large " +
			"(pid 41) 40 GiB, middle (pid 44) 20 GiB, small (pid 40) 2 GiB. Free memory on that GPU, or request less."},
		{"it ended", 50 * gib, true, true, false, ends + "50 GiB of GPU-1 itself; the largest other holders were " +
			"large (pid 41) 40 GiB, middle (pid 44) 20 GiB, small (pid 40) 2 GiB. " +
			"Free memory on that GPU, or request less."},
		{"it ended and held all", 50 * gib, false, true, false, ends + "50 GiB of GPU-1 itself; no other process was " +
			"known to hold memory there. Request less."},
		{"it ended and held all, with PyTorch", 50 * gib, false, true, true, ends + "50 GiB of GPU-1 itself; no " +
			"other process was known to hold memory there. Out of memory by use: PyTorch had 40 GiB " +
			"allocated and 48 GiB reserved, so 8 GiB cached, less than the 30 GiB requested. Request less."},
		{"it ended and held nothing", 0, false, true, false, ends + "no allocation of 1 MiB or more of GPU-1 itself; " +
			"the report of gputap-leak has the processes that hold the GPU. Free memory on that GPU, or request less."},
	} {
		for _, disturb := range []bool{false, true} {
			w := newWorld(t, everything)
			w.disturb = disturb
			hold := func(pid uint32, comm string, bytes uint64) (p *consumertest.Process, at uint64) {
				if p = w.process(pid, comm); bytes > 0 {
					at = w.alloc(p, bytes, 2)
					p.Free(1, w.alloc(p, 70*gib, 3), ktime(4), 1)
				}
				return p, at
			}
			train, own := hold(42, "train", row.train)
			large := train
			if row.others {
				hold(40, "small", 2*gib)
				large, _ = hold(41, "large", 40*gib)
				hold(43, "none", 0)
				hold(44, "middle", 20*gib)
				hold(45, "tiny", gib)
			}
			elsewhere := w.process(50, "elsewhere")
			elsewhere.GPU = &schema.GPU{UUID: "GPU-2"}
			w.alloc(elsewhere, 60*gib, 2)
			if row.reported {
				w.torch(train, 5, [2]uint64{40, 48})
			}
			w.fail(train, 30*gib, 10)
			w.tick(10, 10)
			if own > 0 {
				train.Free(1, own, ktime(10.3), 1)
			}
			if row.others {
				large.Exit(ktime(10.4))
				w.alloc(w.process(46, "later"), 60*gib, 10.5)
			}
			if row.ended {
				train.Exit(ktime(11))
			}
			w.tick(20, 30)
			w.want(outOf)
			want := "train (pid 42) on gpu-01 ran out of GPU memory: 30 GiB requested with cuMemAlloc_v2 in thread " +
				"42 (train), and no allocation like it" + row.want
			if got := w.changes[0].Message; got != want {
				t.Errorf("%s, restored=%t:\ngot  %s\nwant %s", row.name, disturb, got, want)
			}
		}
	}
}

// After several refusals, the last one counts. A process without an alert yet notes them without allocating.
func TestOutOfMemoryTellsTheLastRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	p := w.process(42, "train")
	at := w.alloc(p, 25*gib, 1)
	w.alloc(p, 13*gib, 2)
	w.fail(p, 60*gib, 10)
	p.Free(1, at, ktime(10.1), 1)
	w.fail(p, 60*gib, 10.2)
	p.Exit(ktime(11))
	w.tick(20, 30)
	w.want(outOf)
	if got := w.changes[0].Message; !strings.Contains(got, "once more, and") ||
		!strings.Contains(got, " At the last refusal it held 13 GiB of GPU-1 itself; no other") {
		t.Error(got)
	}
}

// Every failure is an alert or counted as suppressed.
func TestEveryFailureIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	failures := 0
	for pid := range uint32(5) {
		p := w.process(42+pid, "train")
		for i := range 7 {
			w.fail(p, 40*gib, 10+float64(i))
			failures++
		}
		p.Exit(ktime(20 + float64(pid)))
	}
	w.tick(30, 60)
	fired := 0
	for _, a := range w.changes {
		if a.State == alert.Firing {
			fired++
		}
	}
	if n := fired + w.suppressed("oom", "repeat"); n != failures || fired != 5 {
		t.Errorf("%d alerts and suppressed failures, %d of them alerts; want %d and 5", n, fired, failures)
	}
	if !slices.ContainsFunc(w.changes, func(a Alert) bool { return strings.Contains(a.Message, "6 times more") }) {
		t.Errorf("no message counts the failures: %s", w.changes[0].Message)
	}
}

// A process that ran before a reboot holds nothing, although its end was not seen.
func TestProcessesBeforeARebootHoldNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, everything)
	w.alloc(w.process(41, "before"), 40*gib, 5)
	w.tick(10, 20)
	w.host.Header.BootID, w.host.Header.ClockOffset = "boot-2", w.host.Header.ClockOffset+1e12
	p := w.process(42, "train")
	w.alloc(p, gib, 5)
	w.fail(p, 40*gib, 10)
	w.tick(20, 40)
	w.want(outOf)
	if got := w.changes[0].Message; !strings.Contains(got, "no other process was known to hold memory there") {
		t.Error(got)
	}
}

// TestOutOfMemoryOfUnknownGPUs: each number of a device is a GPU of its own. Memory whose device is unknown is not said
// to be held.
func TestOutOfMemoryOfUnknownGPUs(t *testing.T) {
	t.Parallel()
	const ends = " succeeded before the process ended. "
	for name, row := range map[string]struct {
		first, second *schema.GPU
		want          string
	}{
		"numbers": {&schema.GPU{}, &schema.GPU{Ordinal: 1}, ends + "At the refusal it held 2 GiB of the GPU itself; " +
			"the report of gputap-leak has the processes that hold the GPU. Free memory on that GPU, or request less."},
		"nothing is known": {nil, nil, ends + "The GPU is unknown; the report of gputap-leak has the processes that " +
			"hold GPUs. Free memory on that GPU, or request less."},
	} {
		for _, disturb := range []bool{false, true} {
			w := newWorld(t, everything)
			w.disturb = disturb
			p := w.process(42, "train")
			p.GPU = row.first
			w.alloc(p, gib, 2)
			p.GPU = row.second
			w.alloc(p, 2*gib, 3)
			w.fail(p, 30*gib, 10)
			p.Exit(ktime(11))
			w.tick(20, 30)
			w.want(outOf)
			if got := w.changes[0].Message; !strings.HasSuffix(got, row.want) {
				t.Errorf("%s, restored=%t:\ngot  %s\nwant %s", name, disturb, got, row.want)
			}
		}
	}
}
