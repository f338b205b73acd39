package leak

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

// alerting returns a simulation, and the alerts that fire and clear during it.
func alerting(t *testing.T, rules Rules) (s *simulation, raised *[]alert.Alert) {
	raised = &[]alert.Alert{}
	cfg := Config{Rules: rules}
	cfg.OnAlert = func(a alert.Alert) {
		s.tracker.Report() // is not locked
		*raised = append(*raised, a)
	}
	s = newSimulation(t, cfg)
	return s, raised
}

// texts returns rule, severity, state and pid of alerts.
func texts(all []alert.Alert) (list []string) {
	for _, a := range all {
		list = append(list, fmt.Sprintf("%s %s %s %d", a.Rule, a.Severity, a.State, a.PID))
	}
	return list
}

const growing = "leak_growth"

// TestLeakGrowth: a suspect raises one alert, which clears when the growth or the process ends, and which becomes
// critical when the GPU is full within an hour.
func TestLeakGrowth(t *testing.T) {
	t.Parallel()
	warning, cleared := growing+" warning firing 42", growing+" warning cleared 42"
	leaking := func(s *simulation) { s.alloc(9, 16*mib); s.sleep(30 * time.Second) }
	for _, row := range []struct {
		name  string
		rules Rules
		gpu   uint64
		run   func(s *simulation)
		want  []string
	}{
		{"goes on", Rules{}, 80 * gib, func(s *simulation) {
			s.until(time.Hour, func() { leaking(s) })
		}, []string{warning}},
		{"stops", Rules{}, 80 * gib, func(s *simulation) {
			s.until(45*time.Minute, func() { leaking(s) })
			s.until(80*time.Minute, func() { s.sleep(heartbeat) })
		}, []string{warning, cleared}},
		{"the windows get another length, and the process ends", Rules{}, 80 * gib, func(s *simulation) {
			s.until(45*time.Minute, func() { leaking(s) })
			cfg := s.tracker.cfg
			cfg.Window = 10 * time.Second
			s.tracker = consumertest.Restore(t, New(cfg), consumertest.Sections(t, s.tracker))
			s.p.Exit(s.now)
			s.flush()
		}, []string{warning, cleared}},
		{"grows too little", Rules{}, 80 * gib, func(s *simulation) {
			s.until(time.Hour, func() { s.alloc(9, 2*mib); s.sleep(time.Minute) })
		}, nil},
		{"the process ends", Rules{}, 80 * gib, func(s *simulation) {
			s.until(45*time.Minute, func() { leaking(s) })
			s.p.Exit(s.now)
			s.flush()
		}, []string{warning, cleared}},
		{"the GPU is full soon, until the host is forgotten", Rules{}, 4 * gib, func(s *simulation) {
			s.until(80*time.Minute, func() { leaking(s) })
			s.tracker.Forget("test", "gpu-01")
		}, []string{warning, cleared, growing + " critical firing 42", growing + " critical cleared 42"}},
		{"the GPU is full soon at once", Rules{}, 2 * gib, func(s *simulation) {
			s.until(40*time.Minute, func() { leaking(s) })
		}, []string{growing + " critical firing 42"}},
		{"the GPU has room again", Rules{}, 2 * gib, func(s *simulation) {
			s.until(40*time.Minute, func() { leaking(s) })
			s.p.MemInfo(gib, 100*gib, s.now)
			s.until(50*time.Minute, func() { leaking(s) })
		}, []string{growing + " critical firing 42"}},
		{"mode observe", Rules{Mode: alert.ModeObserve}, 2 * gib, func(s *simulation) {
			s.until(40*time.Minute, func() { leaking(s) })
		}, []string{growing + " info firing 42"}},
		{"mode off", Rules{Growth: alert.ModeOff}, 2 * gib, func(s *simulation) {
			s.until(40*time.Minute, func() { leaking(s) })
		}, nil},
		{"excluded", Rules{Exclude: alert.Exclude{Comm: []string{"leak_growth=se*"}}}, 2 * gib, func(s *simulation) {
			s.until(40*time.Minute, func() { leaking(s) })
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, raised := alerting(t, row.rules)
			s.p.GPU = &schema.GPU{UUID: "GPU-0", Bytes: row.gpu}
			row.run(s)
			if got := texts(*raised); !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// TestLeakGrowthNamesTheNumbers compares an alert with the program: what leaked since when, and in which batches.
func TestLeakGrowthNamesTheNumbers(t *testing.T) {
	t.Parallel()
	s, raised := alerting(t, Rules{})
	s.load()
	for range 10 {
		s.work()
	}
	s.every(30*time.Second, 50*time.Minute, func(int) { s.alloc(9, 16*mib) })
	if len(*raised) != 1 {
		t.Fatalf("got %q, want one alert", texts(*raised))
	}
	a := (*raised)[0]
	leaked, first := uint64(0), schema.KTime(0)
	for _, e := range s.events {
		if e.bytes > 0 && e.tid == 9 && !wall(e.at).After(a.Time) {
			leaked += e.bytes
			if first == 0 {
				first = e.at
			}
		}
	}
	if low, high := float64(leaked)*0.8, float64(leaked)*1.2; a.Value < low || a.Value > high {
		t.Errorf("it grew by %.0f bytes, want %d", a.Value, leaked)
	}
	if a.Since.Sub(wall(first)).Abs() > 8*time.Minute {
		t.Errorf("it grows since %s, want %s", a.Since, wall(first))
	}
	if a.Baseline != float64(80*gib/200) || a.TID != 9 || a.GPU != "GPU-0" || a.Bytes == 0 ||
		float64(a.Bytes) > a.Value {
		t.Errorf("baseline %.0f, thread %d, GPU %q, %d bytes", a.Baseline, a.TID, a.GPU, a.Bytes)
	}
	for _, want := range []string{"serve (pid 42) on gpu-01 leaks memory of GPU-0: live memory has grown by ",
		"At this rate the GPU is full in ", "16 MiB and more (device) by thread 9 "} {
		if !strings.Contains(a.Message, want) {
			t.Errorf("%q lacks %q", a.Message, want)
		}
	}
	s.checkEvidence(t, &a)
	page := string(consumertest.Page(t, s.tracker))
	if !strings.Contains(page, `gputap_leak_active{UUID="GPU-0",cluster="test",comm="serve",container="",gpu="",`+
		`hostname="gpu-01",job="",pod="",rule="leak_growth",severity="warning",unit="",user=""} 1`) {
		t.Errorf("the page does not show that the alert fires:\n%s", page)
	}
}

// TestAlertThatIsSwitchedOff: an alert that fires clears at the next window when its rule is off or its process is
// excluded.
func TestAlertThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	for why, rules := range map[string]Rules{
		"the rule is off":         {Mode: alert.ModeOff},
		"the process is excluded": {Exclude: alert.Exclude{Comm: []string{"serve"}}},
	} {
		s, raised := alerting(t, Rules{})
		leaks := func() { s.alloc(9, 16*mib); s.sleep(30 * time.Second) }
		s.until(40*time.Minute, leaks)
		off := Config{Rules: rules, OnAlert: s.tracker.cfg.OnAlert}
		s.tracker = consumertest.Restore(t, New(off), consumertest.Sections(t, s.tracker))
		s.until(42*time.Minute, leaks)
		want := []string{growing + " warning firing 42", growing + " warning cleared 42"}
		if got := texts(*raised); !reflect.DeepEqual(got, want) ||
			!strings.HasSuffix((*raised)[1].Message, "Cleared: "+why+".") {
			t.Errorf("%s: got %q, want %q", why, got, want)
		}
	}
}

// TestGrowthOnAFullGPU: the alert asks for no restart before the GPU is full.
func TestGrowthOnAFullGPU(t *testing.T) {
	t.Parallel()
	s, raised := alerting(t, Rules{})
	s.p.GPU = &schema.GPU{UUID: "GPU-0", Bytes: 512 * mib}
	s.until(40*time.Minute, func() { s.alloc(9, 16*mib); s.sleep(30 * time.Second) })
	if len(*raised) != 1 {
		t.Fatalf("got %q, want one alert", texts(*raised))
	}
	message := (*raised)[0].Message
	if !strings.Contains(message, " The GPU is full. ") ||
		!strings.HasSuffix(message, " Restart the process, and find out what keeps that memory.") {
		t.Error(message)
	}
}

// checkEvidence checks that the first batch of an alert has an event of the window in which the growth began, or is the
// first after it, and that the last one is the last before the alert.
func (s *simulation) checkEvidence(t *testing.T, a *alert.Alert) {
	t.Helper()
	var first, last uint64
	for _, step := range s.steps {
		b := consumertest.Decode(t, step.Message)
		if b.Kind != schema.KindMemory || b.Events == 0 || b.Wall(b.Last).After(a.Time.Add(heartbeat)) {
			continue
		}
		if first == 0 && !b.Wall(b.Last).Before(a.Since) {
			first = b.Seq
		}
		last = b.Seq
	}
	e := a.Evidence
	if e.Host != "gpu-01" || e.Boot != "boot-1" || e.Run != s.host.Header.Run || e.Kind != "memory" ||
		e.SeqFrom != first || e.SeqTo != e.Seq || e.Seq > last || e.Seq+2 < last {
		t.Errorf("evidence %+v, want batches %d to %d", e, first, last)
	}
}

// TestUnfreedAtExit: a program that frees most of its memory when it ends, and not all, has lost track of the rest.
func TestUnfreedAtExit(t *testing.T) {
	t.Parallel()
	one := []string{"unfreed_at_exit warning firing 42"}
	// held returns memory that the program has held for a minute.
	held := func(s *simulation, n int, bytes uint64) []uint64 {
		defer s.sleep(time.Minute)
		return s.allocs(1, n, bytes, time.Second)
	}
	exit := func(s *simulation) { s.p.Exit(s.now); s.flush() }
	for _, row := range []struct {
		name string
		run  func(s *simulation)
		want []string
	}{
		{"nine of ten are freed", func(s *simulation) {
			all := held(s, 10, 512*mib)
			s.free(all[1:]...)
			exit(s)
		}, one},
		{"restored before it ends", func(s *simulation) {
			all := held(s, 10, 512*mib)
			s.free(all[1:]...)
			s.flush()
			s.tracker = consumertest.Restore(t, New(s.tracker.cfg), consumertest.Sections(t, s.tracker))
			exit(s)
		}, one},
		{"ten minutes later", func(s *simulation) {
			all := held(s, 10, 512*mib)
			s.free(all[1:]...)
			exit(s)
			s.sleep(11 * time.Minute)
		}, append(one, "unfreed_at_exit warning cleared 42")},
		{"excluded later", func(s *simulation) {
			all := held(s, 10, 512*mib)
			s.free(all[1:]...)
			exit(s)
			cfg := s.tracker.cfg
			cfg.Rules.Exclude.Comm = []string{"serve"}
			s.tracker = consumertest.Restore(t, New(cfg), consumertest.Sections(t, s.tracker))
			s.sleep(time.Minute)
		}, append(one, "unfreed_at_exit warning cleared 42")},
		{"nothing is freed", func(s *simulation) { s.load(); exit(s) }, nil},
		{"everything is freed", func(s *simulation) { s.free(s.load()...); exit(s) }, nil},
		{"one of ten is freed", func(s *simulation) {
			s.free(held(s, 10, 512*mib)[0])
			exit(s)
		}, nil},
		{"less than half a per cent of the GPU is left", func(s *simulation) {
			s.free(held(s, 10, 400*mib)[1:]...)
			exit(s)
		}, nil},
		{"it is killed while it works", func(s *simulation) {
			held(s, 10, 512*mib)
			for range 20 {
				s.free(s.allocs(2, 20, 512*mib, time.Second)...)
				s.sleep(time.Second)
			}
			exit(s)
		}, nil},
		{"it works on after it freed its memory", func(s *simulation) {
			all := held(s, 10, 512*mib)
			s.free(all[1:]...)
			s.free(s.alloc(1, mib))
			exit(s)
		}, nil},
		{"events were lost", func(s *simulation) {
			all := held(s, 10, 512*mib)
			s.flush()
			s.host.Header.Lost[schema.LossControlRing]++
			s.free(all[1:]...)
			exit(s)
		}, nil},
		{"it ran before gputap", func(s *simulation) {
			s.p.Late = true
			s.free(held(s, 10, 512*mib)[1:]...)
			exit(s)
		}, nil},
		{"the rest ends with its context", func(s *simulation) {
			s.p.RetainContext(7, s.now).In(7)
			s.free(held(s, 10, 512*mib)[1:]...)
			s.p.ResetContext(7, s.now)
			exit(s)
		}, nil},
		{"it calls exec", func(s *simulation) {
			s.free(held(s, 10, 512*mib)[1:]...)
			s.p.Exec("next", s.now)
			exit(s)
		}, nil},
		{"host memory is left", func(s *simulation) {
			all := held(s, 9, 512*mib)
			s.class = "cuMemHostAlloc"
			held(s, 1, 2*gib)
			s.free(all...)
			exit(s)
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, raised := alerting(t, Rules{Unfreed: alert.ModeAlert})
			row.run(s)
			if got := texts(*raised); !reflect.DeepEqual(got, row.want) {
				t.Fatalf("got %q, want %q", got, row.want)
			}
			if len(row.want) == 0 {
				return
			}
			a := (*raised)[0]
			if a.Value != float64(512*mib) || a.Baseline != float64(9*512*mib) || a.GPU != "GPU-0" ||
				!strings.Contains(a.Message, "freed 4.5 GiB of GPU memory in 9 allocations before it ended, but not "+
					"512 MiB in 1.") || a.Evidence.Seq == 0 {
				t.Errorf("got %+v", a)
			}
		})
	}
}

// TestManyRunsRaiseOneAlert: runs of one command on one host are repetitions, and by default an information.
func TestManyRunsRaiseOneAlert(t *testing.T) {
	t.Parallel()
	s, _ := alerting(t, Rules{})
	for pid := range uint32(5) {
		s.p = s.host.Process(100+pid, s.now, "serve")
		s.p.GPU = &schema.GPU{UUID: "GPU-0", Bytes: 80 * gib}
		all := s.allocs(1, 10, 512*mib, time.Second)
		s.sleep(time.Minute)
		s.free(all[1:]...)
		s.p.Exit(s.now)
		s.flush()
	}
	all := s.tracker.Alerts()
	if len(all) != 1 || all[0].Repeats != 4 || all[0].Severity != alert.Info || all[0].PID != 100 {
		t.Errorf("got %+v", all)
	}
}

// TestSuspectTensorsAreALeak: while the memory is steady, tensors in it may leak.
func TestSuspectTensorsAreALeak(t *testing.T) {
	t.Parallel()
	state := trend.Steady
	s, raised := alerting(t, Rules{})
	s.tracker.cfg.Tensors = func(id schema.ProcessID, ordinal int32) (Tensors, bool) {
		if id.PID != 42 || ordinal != 0 {
			t.Errorf("asked for the tensors of process %d on GPU %d", id.PID, ordinal)
		}
		return Tensors{State: state, Since: wall(s.now), PerHour: gib, Growth: 300 * mib, SuspectBytes: 200 * mib,
			Cached: 10 * gib, Why: "the tensors grow", Evidence: alert.Evidence{Kind: "tensor", Seq: 9},
			Groups: []Group{{TID: 9, Thread: "loader", Class: "tensor", SizeClass: 4 * mib, Bytes: 180 * mib,
				Allocations: 30, Oldest: wall(s.now)}}}, true
	}
	s.load()
	s.p.MemInfo(79*gib, 80*gib, s.now)
	s.until(30*time.Minute, s.work)
	state = trend.Suspect
	s.sleep(2 * time.Minute)
	v := s.verdict(0)
	if v.State != trend.Suspect || v.SuspectBytes != 200*mib || v.Why != "the tensors grow" ||
		(v.FullIn-11*time.Hour).Abs() > time.Hour || len(v.Groups) != 1 {
		t.Errorf("got %+v", v)
	}
	state = trend.Growing
	s.sleep(2 * time.Minute)
	want := []string{growing + " warning firing 42", growing + " warning cleared 42"}
	if got := texts(*raised); !reflect.DeepEqual(got, want) || (*raised)[0].Evidence.Kind != "tensor" ||
		(*raised)[0].TID != 9 || !strings.Contains((*raised)[0].Message,
		" The largest group: 180 MiB in 30 allocations of 4 MiB and more (tensor) by thread 9 (loader).") {
		t.Errorf("got %q, want %q", got, want)
	}
}
