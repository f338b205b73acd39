package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/query"
)

func leakFleet(t *testing.T) *simFleet {
	t.Helper()
	f := newFleet(t, shards)
	for i := range 8 {
		f.host([]string{"east", "west"}[i%2], fmt.Sprintf("gpu-%d", i), 4)
	}
	f.consume("leak", leakProgram{})
	f.consume("leak", leakProgram{})
	f.settled("leak")
	return f
}

// list runs gputap get … -o json.
func list[T any](f *simFleet, args ...string) *answer.List[T] {
	f.tb.Helper()
	stdout, _, err := f.typed(append([]string{"get"}, append(args, "-o", "json")...)...)
	f.check(err)
	l := &answer.List[T]{}
	f.check(json.Unmarshal([]byte(stdout), l))
	return l
}

// TestProcessesEqualTheTruth compares every filter, order and limit with a loop over the published events.
func TestProcessesEqualTheTruth(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	byLive := func(a, b held) int {
		return int(b.live>>10) + int(b.unfreed>>20) - int(a.live>>10) - int(a.unfreed>>20)
	}
	byHost := func(a, b held) int { return strings.Compare(a.cluster+a.host, b.cluster+b.host) }
	for _, row := range []struct {
		args  string
		wants func(held) bool
		order func(a, b held) int
		limit int
	}{
		{"", func(held) bool { return true }, byLive, 50},
		{"--limit 5", func(held) bool { return true }, byLive, 5},
		{"--cluster east", func(p held) bool { return p.cluster == "east" }, byLive, 50},
		{"--host gpu-[2-5]", func(p held) bool { return glob("gpu-[2-5]", p.host) }, byLive, 50},
		{"--user user1 --limit 3", func(p held) bool { return p.user == "user1" }, byLive, 3},
		{"--comm job-3 --limit 2", func(p held) bool { return p.ended }, byLive, 2},
		{"--user 1002", func(p held) bool { return p.uid == 1002 }, byLive, 50},
		{"--comm job-* --host *7", func(p held) bool { return p.host == "gpu-7" }, byLive, 50},
		{"--sort unfreed", func(held) bool { return true },
			func(a, b held) int { return int(b.unfreed>>20) - int(a.unfreed>>20) }, 50},
		{"--sort host --limit 6 --cluster west", func(p held) bool { return p.cluster == "west" }, byHost, 6},
		{"--host none", func(held) bool { return false }, byLive, 50},
	} {
		got := list[*report.Process](f, append([]string{"processes"}, strings.Fields(row.args)...)...)
		var want []held
		for _, p := range f.processes {
			if row.wants(p) {
				want = append(want, p)
			}
		}
		slices.SortStableFunc(want, func(a, b held) int {
			return slices.Compare([]int{row.order(a, b), byHost(a, b), int(a.pid)}, []int{0, 0, int(b.pid)})
		})
		total := len(want)
		want = want[:min(row.limit, total)]
		if got.Total != total || got.Shards != shards || got.Answered != shards || len(got.Items) != len(want) {
			t.Errorf("%q: total %d of %d, %d items of %d, %+v", row.args, got.Total, total, len(got.Items), len(want),
				got.Reach)
			continue
		}
		for i, p := range got.Items {
			is := held{p.Cluster, p.Host, p.PID, p.User, p.Comm, p.UID, p.LiveBytes, p.PeakBytes, p.UnfreedBytes,
				p.Ended}
			if is != want[i] || len(p.Calls) == 0 {
				t.Errorf("%q: item %d is %+v, want %+v", row.args, i, is, want[i])
			}
		}
	}
}

func glob(pattern, name string) bool {
	found, _ := path.Match(pattern, name)
	return found
}

func TestHostsAndGPUsEqualTheTruth(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	live, running := map[string]uint64{}, map[string]int{}
	for _, p := range f.processes {
		live[p.host] += p.live
		if !p.ended {
			running[p.host]++
		}
	}
	hosts := list[answer.FleetHost](f, "hosts", "--sort", "live")
	if len(hosts.Items) != len(live) {
		t.Fatalf("%d hosts", len(hosts.Items))
	}
	for i, h := range hosts.Items {
		if h.LiveBytes != live[h.Host.Host] || h.Processes != running[h.Host.Host] || h.Producer != "v1" ||
			h.Linux != "6.18" || len(h.GPUs) != 1 || h.Heard == nil || time.Since(*h.Heard) > time.Minute ||
			h.LastEvent == nil || len(h.Lost) != 0 {
			t.Errorf("host %+v", h)
		}
		if i > 0 && h.LiveBytes > hosts.Items[i-1].LiveBytes {
			t.Errorf("host %d is out of order", i)
		}
	}
	gpus := list[answer.FleetGPU](f, "gpus", "--host", "gpu-[0-3]")
	if len(gpus.Items) != 4 || gpus.Total != 4 {
		t.Fatalf("%d GPUs, total %d", len(gpus.Items), gpus.Total)
	}
	for _, g := range gpus.Items {
		if g.LiveBytes != live[g.Host] || g.Processes != running[g.Host] || g.UUID != "GPU-"+g.Host ||
			g.Name != "H200" || g.Info != nil || g.Total == nil || *g.Total != 141<<30 {
			t.Errorf("GPU %+v", g)
		}
	}
}

// TestHostsAndGPUsOfSelectedProcesses: hosts and GPUs count the selected processes alone.
func TestHostsAndGPUsOfSelectedProcesses(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	for flags, selects := range map[string]func(held) bool{
		"--user user1":             func(p held) bool { return p.user == "user1" },
		"--comm job-2 --host *[3]": func(p held) bool { return p.comm == "job-2" && p.host == "gpu-3" },
		"--comm nope":              func(held) bool { return false },
		"--job none":               func(held) bool { return false },
	} {
		live, running := map[string]uint64{}, map[string]int{}
		for _, p := range f.processes {
			if selects(p) && !p.ended {
				live[p.host] += p.live
				running[p.host]++
			}
		}
		gotLive, gotRunning, gpus := map[string]uint64{}, map[string]int{}, map[string]uint64{}
		for _, h := range list[answer.FleetHost](f, append([]string{"hosts"}, strings.Fields(flags)...)...).Items {
			gotLive[h.Host.Host], gotRunning[h.Host.Host] = h.LiveBytes, h.Processes
		}
		for _, g := range list[answer.FleetGPU](f, append([]string{"gpus"}, strings.Fields(flags)...)...).Items {
			gpus[g.Host] = g.LiveBytes
		}
		if !maps.Equal(gotLive, live) || !maps.Equal(gotRunning, running) || !maps.Equal(gpus, live) {
			t.Errorf("%s: hosts %v, %v, GPUs %v, want %v, %v", flags, gotLive, gotRunning, gpus, live, running)
		}
	}
	for flags, shown := range map[string]bool{"get hosts": true, "get hosts --cluster east": false,
		"get processes --limit 9": true} {
		stdout, _, err := f.typed(strings.Fields(flags)...)
		if f.check(err); strings.HasPrefix(stdout, "CLUSTER ") != shown {
			t.Errorf("%s prints\n%s", flags, stdout)
		}
	}
}

// TestMissingShardIsNamed: two of three shards have an owner that answers.
func TestMissingShardIsNamed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, shards)
	take := func(*query.Question) (query.Taken, error) {
		return query.Taken{Rows: iter.Seq[any](func(func(any) bool) {})}, nil
	}
	s := query.NewService(query.Options{Fold: "leak", Instance: "a", Shards: func() []query.Shard {
		return []query.Shard{{Number: 0, Epoch: 1, Take: take}, {Number: 2, Epoch: 1, Take: take}}
	}}, f.js.Conn(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	client := query.NewClient(f.js.Conn())
	bustest.Eventually(t, "the owner listens", func() bool {
		a, err := client.Ask(t.Context(), "leak", []int{0, 2}, query.Question{What: "x"})
		return err == nil && len(a.Replies) == 2
	})
	stdout, _, err := f.typed("get", "processes", "-o", "json")
	const want = "2 of 3 shards answered; missing: 1 (leak: no instance owns it)"
	if app.ExitCode(err) != 4 || err.Error() != want {
		t.Errorf("ends with %d, %v; want %s", app.ExitCode(err), err, want)
	}
	for _, part := range []string{`"shards":3,"answered":2,"missing":[1]`, `"not_running":["launch","bandwidth"]`,
		`"items":[]`} {
		if !strings.Contains(stdout, part) {
			t.Errorf("%s is not in %s", part, stdout)
		}
	}
	stdout, _, err = f.typed("top", "--once")
	if app.ExitCode(err) != 4 || !strings.Contains(err.Error(), "missing: 1") ||
		!strings.Contains(stdout, "2 of 3 shards; missing: 1") {
		t.Errorf("top --once ends with %d, %v, and prints\n%s", app.ExitCode(err), err, stdout)
	}
	stdout, _, err = f.typed("status")
	if app.ExitCode(err) != 3 || strings.Contains(stdout, "no host was ever heard of") ||
		!strings.Contains(stdout, "hosts      0 of 0 heard in the last 30 s; those of shard 1 are unknown\n") ||
		!strings.Contains(stdout, "verdict    unhealthy: leak: 1 of 3 shards do not answer; not running: ") {
		t.Errorf("status ends with %d, %v, and prints\n%s", app.ExitCode(err), err, stdout)
	}
	if _, _, err := f.typed("get", "alerts"); app.ExitCode(err) != 4 ||
		!strings.Contains(err.Error(), "missing: 0, 1, 2 (anomaly: no instance owns it; leak: no instance owns it)") {
		t.Errorf("without gputap-anomaly: %v", err)
	}
}

func TestWrongFlagsOfGet(t *testing.T) {
	t.Parallel()
	f := &simFleet{tb: t, url: "nats://127.0.0.1:1"}
	for line, want := range map[string]string{
		"get processes --sort size": "unknown order", "get hosts -o xml": "table, wide, json",
		"get gpus --limit -1": "0 or more", "get hosts --host gpu-[": `--host "gpu-["`, "get hosts --timeout 0s": "more than 0",
	} {
		_, _, err := f.typed(strings.Fields(line)...)
		if app.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s ends with %d, %v", line, app.ExitCode(err), err)
		}
	}
}

// BenchmarkGet asks 16 shards about 1,000 hosts with 8 processes each.
func BenchmarkGet(b *testing.B) {
	f := newFleet(b, 16)
	for i := range 1000 {
		f.host("east", fmt.Sprintf("gpu-%04d", i), 8)
	}
	f.consume("leak", leakProgram{})
	f.settled("leak")
	for _, args := range [][]string{
		{"get", "processes"}, {"get", "processes", "--limit", "0"}, {"get", "processes", "--limit", "0", "-o", "json"},
		{"get", "hosts", "--limit", "0"}, {"get", "gpus", "--limit", "0"},
	} {
		b.Run(strings.Join(args[1:], " "), func(b *testing.B) {
			for b.Loop() {
				stdout, _, err := f.typed(args...)
				f.check(err)
				b.SetBytes(int64(len(stdout)))
			}
		})
	}
}

func TestStatusAndDescription(t *testing.T) {
	t.Parallel()
	f := leakFleet(t)
	stdout, _, err := f.typed("status", "-o", "json")
	f.check(err)
	var s answer.Status
	f.check(json.Unmarshal([]byte(stdout), &s))
	leak := &s.Folds[0]
	if !s.Healthy || s.Hosts.Known != 8 || s.Hosts.Heard != 8 || leak.Answered != shards || leak.Instances < 1 ||
		*leak.Lag != 0 || leak.Checkpoint == nil || s.Folds[1].Running() {
		t.Errorf("status %s", stdout)
	}
	stdout, _, err = f.typed("status", "--cluster", "west", "--host", "gpu-[1-3]")
	if err != nil || !strings.Contains(stdout, "2 of 2 heard") {
		t.Errorf("status of two hosts: %v\n%s", err, stdout)
	}
	if stdout, _, err := f.typed("status"); err != nil || !strings.Contains(stdout, "8 of 8 heard") {
		t.Errorf("status: %v\n%s", err, stdout)
	}
	want := f.processes[13] // the second process of host gpu-3
	stdout, _, err = f.typed("describe", "process", fmt.Sprintf("%s/%d", want.host, want.pid), "-o", "json")
	f.check(err)
	var got answer.List[*report.Process]
	f.check(json.Unmarshal([]byte(stdout), &got))
	if len(got.Items) != 1 || got.Items[0].LiveBytes != want.live || got.Items[0].Comm != want.comm {
		t.Errorf("%s/%d is %s", want.host, want.pid, stdout)
	}
	largest := report.Allocation{Address: "0x200000000", Bytes: want.live, Class: "device", GPU: "GPU-" + want.host,
		TID: 8, Symbol: "cuMemAlloc_v2"}
	if list := got.Items[0].Largest; len(list) == 1 {
		largest.Thread, largest.Since = list[0].Thread, list[0].Since
	}
	if !slices.Equal(got.Items[0].Largest, []report.Allocation{largest}) {
		t.Errorf("the largest allocations are %+v, want %+v", got.Items[0].Largest, largest)
	}
	live := app.Bytes(want.live)
	if stdout, _, err := f.typed("describe", "process", fmt.Sprint(want.pid)); err != nil ||
		strings.Count(stdout, "\nwest/gpu-") != 4 || !strings.Contains(stdout, "live "+live+" in 1 allocation") {
		t.Errorf("PID %d: %v\n%s", want.pid, err, stdout)
	}
	for name, status := range map[string]int{"gpu-3/9999": 1, "gpu-3/x": 2, "/7": 2, "0": 2, "a/b/c/7": 2,
		"east/gpu-3/7": 1} {
		if _, _, err := f.typed("describe", "process", name); app.ExitCode(err) != status {
			t.Errorf("describe process %s ends with %d, %v", name, app.ExitCode(err), err)
		}
	}
}

// cancelling is standard output. It ends a watch after some lines.
type cancelling struct {
	bytes.Buffer
	lines  int
	cancel func()
}

func (c *cancelling) Write(p []byte) (int, error) {
	n, err := c.Buffer.Write(p)
	if bytes.Count(c.Bytes(), []byte("\n")) >= c.lines {
		c.cancel()
	}
	return n, err
}

func TestWatchPrintsTheTimeOfEachTable(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	f.host("east", "gpu-0", 1)
	f.consume("leak", leakProgram{})
	f.settled("leak")
	for args, want := range map[string]string{
		"":        `^20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ\nHOST .*\ngpu-0 .*\n\n20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ\nHOST .*\ngpu-0 .*\n`,
		"-o json": `^{"time":.*}\n{"time":.*}\n`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &cancelling{lines: strings.Count(want, `\n`), cancel: cancel}
		p := &app.Process{Name: "gputap", Metrics: prometheus.NewRegistry(), Stdout: out, Stderr: io.Discard,
			Log: slog.New(slog.DiscardHandler)}
		line := append([]string{"get", "hosts", "--watch=1ms", "--nats.url", f.url}, strings.Fields(args)...)
		if err := command(p, line).ExecuteContext(ctx); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s shows\n%s", args, out.String())
		}
	}
}

func TestTimeToConnectIsWithinTimeout(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, row := range []struct {
		timeout   time.Duration
		servers   int
		all, each time.Duration
	}{
		{2 * s, 1, 2 * s, 2 * s}, {s, 1, s, s}, {3 * s, 3, 3 * s, s},
		{time.Minute, 1, connectTime, nats.DefaultTimeout},
	} {
		if all, each := connectTimes(row.timeout, row.servers); all != row.all || each != row.each {
			t.Errorf("--timeout %s and %d servers: %s and %s", row.timeout, row.servers, all, each)
		}
	}
}

func TestInterruptedQuestionEndsWatchWithoutError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := repeat(ctx, time.Hour, func(bool) error {
		cancel()
		return fmt.Errorf("read the topology: %w", ctx.Err())
	})
	if err != nil {
		t.Error(err)
	}
	failed := errors.New("the stream is gone")
	if err := repeat(t.Context(), time.Hour, func(bool) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a question that fails ends with %v", err)
	}
}
