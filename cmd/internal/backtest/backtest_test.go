package backtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// corpus are recordings of real programs.
const corpus = "../harness/corpus/testdata/third/"

const sizes = corpus + "size-oom-pageable.gputap"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// typed runs gputap anomaly backtest.
func typed(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	p := &app.Process{Stdout: &out, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
	cmd := Command(p)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"backtest"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func decoded(t *testing.T, stdout string) (r Result) {
	t.Helper()
	check(t, json.Unmarshal([]byte(stdout), &r))
	return r
}

// result runs the command and decodes its answer.
func result(t *testing.T, args ...string) Result {
	t.Helper()
	stdout, err := typed(t, append(args, "-o", "json")...)
	check(t, err)
	return decoded(t, stdout)
}

// names returns what alerts are about.
func names(list []alert.Alert) (all []string) {
	for i := range list {
		all = append(all, list[i].Rule+" "+list[i].Comm)
	}
	slices.Sort(all)
	return all
}

// ruleOf returns the counts of a rule as text.
func ruleOf(r *Result, name string) string {
	for i := range r.Rules {
		if one := &r.Rules[i]; one.Rule == name {
			return fmt.Sprint(text(one.Current.Alerts), " | ", text(one.Changed.Alerts), " | ",
				text(one.Current.Suppressed), " | ", text(one.Changed.Suppressed))
		}
	}
	return ""
}

func TestLowerThresholdsRaiseMoreAlerts(t *testing.T) {
	t.Parallel()
	r := result(t, sizes, "--set", "anomaly.rules.alloc_size.allocations=2")
	want := []string{"alloc_size odd_oom_cube", "alloc_size odd_size_dense", "alloc_size odd_size_pairs"}
	if got := names(r.OnlyChanged); !slices.Equal(got, want) || len(r.OnlyCurrent) != 0 {
		t.Errorf("only changed: %q; only current: %q", got, names(r.OnlyCurrent))
	}
	if got := ruleOf(&r, "alloc_size"); got != "2 warning | 5 warning | - | 1 followed" {
		t.Errorf("alloc_size: %s", got)
	}
	if got := ruleOf(&r, "oom"); got != "5 critical | 5 critical | 5 repeat | 5 repeat" {
		t.Errorf("oom: %s", got)
	}
	for _, a := range r.OnlyChanged {
		if a.Host != "vm" || a.PID == 0 || a.Message == "" || a.Time.IsZero() || a.State != alert.Firing {
			t.Errorf("alert %+v", a)
		}
	}
	if r = result(t, sizes, "--set", "anomaly.rules.alloc_size.factor=100000"); len(r.OnlyCurrent) != 2 ||
		len(r.OnlyChanged) != 0 {
		t.Errorf("a high factor: only current %q, only changed %q", names(r.OnlyCurrent), names(r.OnlyChanged))
	}
}

// TestEqualThresholdsRaiseEqualAlerts runs every rule, also the one about jobs, and twice.
func TestEqualThresholdsRaiseEqualAlerts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(corpus + "*.gputap")
	check(t, err)
	alerts := uint64(0)
	for _, file := range files {
		first, err := typed(t, file, "-o", "json", "--set", "anomaly.rules.alloc_size.factor=8")
		check(t, err)
		again, err := typed(t, file, "-o", "json")
		check(t, err)
		r := decoded(t, first)
		if first != again || len(r.OnlyCurrent)+len(r.OnlyChanged) != 0 || !r.Complete {
			t.Errorf("%s: %s\nand again %s", file, first, again)
		}
		for i := range r.Rules {
			if one := &r.Rules[i]; !reflect.DeepEqual(one.Current, one.Changed) {
				t.Errorf("%s: %+v", file, one)
			}
			for _, n := range r.Rules[i].Current.Alerts {
				alerts += n
			}
		}
	}
	if len(files) < 7 || alerts < 10 {
		t.Errorf("%d files with %d alerts", len(files), alerts)
	}
}

func TestRulesOfJobsAndOfLeaks(t *testing.T) {
	t.Parallel()
	r := result(t, corpus+"rank-1.gputap", "--set", "anomaly.rules.straggler.mode=off")
	if len(r.OnlyCurrent) != 3 || len(r.OnlyChanged) != 0 || r.OnlyCurrent[0].Rule != "straggler" {
		t.Errorf("straggler off: %q, %q", names(r.OnlyCurrent), names(r.OnlyChanged))
	}
	r = result(t, corpus+"launch-exit.gputap", "--set", "leak.rules.unfreed_at_exit.mode=alert")
	if got := ruleOf(&r, "unfreed_at_exit"); got != "1 info | 1 warning | - | -" ||
		len(r.OnlyCurrent)+len(r.OnlyChanged) != 0 {
		t.Errorf("another mode changes the severity alone: %s, %q, %q", got, names(r.OnlyCurrent), names(r.OnlyChanged))
	}
	r = result(t, corpus+"launch-exit.gputap", "--set", "leak.exclude.comm=unfreed_at_exit=odd*")
	if got := ruleOf(&r, "unfreed_at_exit"); got != "1 info | - | - | 1 excluded" {
		t.Errorf("excluded: %s", got)
	}
}

func TestFileChangesKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new.yaml")
	const text = "anomaly: {rules: {alloc_size: {factor: 2, allocations: 2}}}\nlog: {level: info}\n"
	check(t, os.WriteFile(file, []byte(text), 0o600))
	if r := result(t, sizes, "--config", file); len(r.OnlyChanged) != 3 {
		t.Errorf("only changed: %q", names(r.OnlyChanged))
	}
	if r := result(t, sizes, "--config", file, "--set", "anomaly.mode=off"); len(r.OnlyChanged) != 0 ||
		len(r.OnlyCurrent) != 7 {
		t.Errorf("all rules off: only current %q, only changed %q", names(r.OnlyCurrent), names(r.OnlyChanged))
	}
}

func TestVariablesAreCurrent(t *testing.T) {
	t.Setenv("GPUTAP_ANOMALY__RULES__ALLOC_SIZE__FACTOR", "2")
	t.Setenv("GPUTAP_ANOMALY__RULES__ALLOC_SIZE__ALLOCATIONS", "2")
	r := result(t, sizes, "--set", "anomaly.rules.alloc_size.factor=8")
	if got := ruleOf(&r, "alloc_size"); !strings.HasPrefix(got, "5 warning | ") || len(r.OnlyChanged) != 0 {
		t.Errorf("alloc_size: %s, only changed %q", got, names(r.OnlyChanged))
	}
}

// TestRange ends before the second group of alerts, or begins behind the first. The rules read the earlier messages in
// both cases.
func TestRange(t *testing.T) {
	t.Parallel()
	const between = "2026-11-23T22:13:00Z"
	all := result(t, sizes, "--set", "anomaly.mode=off")
	early := result(t, sizes, "--set", "anomaly.mode=off", "--until", between)
	late := result(t, sizes, "--set", "anomaly.mode=off", "--since", between)
	got := append(names(early.OnlyCurrent), names(late.OnlyCurrent)...)
	if slices.Sort(got); !slices.Equal(got, names(all.OnlyCurrent)) || len(early.OnlyCurrent) == 0 ||
		len(late.OnlyCurrent) == 0 {
		t.Errorf("%q until, %q since", names(early.OnlyCurrent), names(late.OnlyCurrent))
	}
	if after := result(t, sizes, "--since", "2026-11-23T23:00:00Z"); len(after.Rules) != 0 {
		t.Errorf("behind the end: %+v", after.Rules)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(sizes)
	check(t, err)
	cut := filepath.Join(t.TempDir(), "cut.gputap")
	check(t, os.WriteFile(cut, data[:len(data)-10], 0o600))
	for args, want := range map[string]struct {
		status int
		err    string
	}{
		"--set anomaly.rules.alloc_rate.factr=3":       {2, "did you mean anomaly.rules.alloc_rate.factor?"},
		"--set anomaly.rules.alloc_rate.factor=1":      {2, "anomaly.rules.alloc_rate.factor: 1 is out of range"},
		"--set anomaly.rules.alloc_rate.factor=x":      {2, "expected a whole number"},
		"--set anomaly.rules.alloc_size.min_bytes=1XB": {2, "is not a number of bytes"},
		"--set leak.rules.leak_growth.mode=on":         {2, "leak.rules.leak_growth.mode: unknown \"on\""},
		"--set leak.window":                            {2, "use KEY=VALUE"},
		"--set nats.url=nats://x":                      {2, "the rules have no such key"},
		"--set config=x":                               {2, "unknown key config"},
		"--config none.yaml":                           {2, "read configuration file none.yaml"},
		"-o csv":                                       {2, "use text, json"},
		"--since yesterday":                            {2, "--since"},
		"":                                             {0, ""},
	} {
		_, err := typed(t, append([]string{sizes}, strings.Fields(args)...)...)
		if got := app.ExitCode(err); got != want.status || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: status %d, %v; want %d, %s", args, got, err, want.status, want.err)
		}
	}
	stdout, err := typed(t, cut)
	if app.ExitCode(err) != 4 || !strings.Contains(stdout, "incomplete: ") || !strings.Contains(stdout, "are damaged") {
		t.Errorf("status %d: %s", app.ExitCode(err), stdout)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	stdout, err := typed(t, sizes, "--set", "anomaly.rules.alloc_size.factor=100000")
	check(t, err)
	const want = `RULE        ALERTS      CHANGED ALERTS  SUPPRESSED  CHANGED SUPPRESSED
alloc_size  2 warning   -               -           -
oom         5 critical  5 critical      5 repeat    5 repeat

only the current configuration raises 2 alerts:
  2026-11-23 22:`
	if !strings.HasPrefix(stdout, want) {
		t.Errorf("got\n%s\nwant\n%s", stdout, want)
	}
	stdout, err = typed(t, sizes)
	if err != nil || !strings.Contains(stdout, "\nboth configurations raise the same alerts\n") {
		t.Errorf("%v: %s", err, stdout)
	}
	if stdout, err = typed(t, corpus+"copy.gputap"); err != nil || stdout != "no rule found anything\n" {
		t.Errorf("%v: %s", err, stdout)
	}
}

func TestMatching(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time {
		return time.Unix(1_700_000_000, 0).Add(time.Duration(minute) * time.Minute)
	}
	one := func(rule, gpu string, fired, cleared int) *Incident {
		i := &Incident{Alert: alert.Alert{Rule: rule, GPU: gpu, PID: 7}, Fired: at(fired)}
		if cleared > 0 {
			i.Cleared = at(cleared)
		}
		return i
	}
	for _, row := range []struct {
		name string
		a, b *Incident
		want bool
	}{
		{"equal", one("oom", "0", 1, 2), one("oom", "0", 1, 2), true},
		{"earlier", one("oom", "0", 1, 5), one("oom", "0", 4, 5), true},
		{"cleared before", one("oom", "0", 1, 2), one("oom", "0", 3, 5), false},
		{"still fires", one("oom", "0", 1, 0), one("oom", "0", 3, 0), true},
		{"another rule", one("oom", "0", 1, 0), one("alloc_size", "0", 1, 0), false},
		{"another GPU", one("oom", "0", 1, 0), one("oom", "1", 1, 0), false},
	} {
		if row.a.matches(row.b) != row.want || row.b.matches(row.a) != row.want {
			t.Errorf("%s: want %t both ways", row.name, row.want)
		}
	}
}

const (
	second = schema.KTime(time.Second)
	mib    = 1 << 20
	gib    = 1 << 30
)

// message returns the events that were added to a host, as NATS stores them.
func message(h *consumertest.Host, sequence uint64) *recording.Message {
	return &recording.Message{Sequence: sequence, Subject: schema.Subject(0, "test", "gpu-7", schema.KindMemory),
		Stored: consumertest.Wall, Data: bytes.Clone(h.Message())}
}

// written writes a recording that begins behind a message, with a state if there is one.
func written(t *testing.T, state *consumer.Replay, after uint64, m *recording.Message) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	if state != nil {
		check(t, state.Sections(w.AddSection))
	}
	check(t, w.AddStreams(recording.Selection{}, []recording.Stream{{Name: "GPUTAP_EV_000", Created: consumertest.Wall,
		State: recording.KnowledgeComplete, After: after}}))
	check(t, w.Append(m))
	check(t, w.Close())
	return path
}

// TestLowerFactorRaisesAnAlert about an allocation that is five times the largest before. The default factor is 8.
func TestLowerFactorRaisesAnAlert(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-7")
	p := h.Process(7, second/2, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	for i := range schema.KTime(12) {
		p.Alloc(7, 0x1000, 128*mib, (1+i)*second, 0).Free(7, 0x1000, (1+i)*second+second/2, 0)
	}
	p.Alloc(7, 0x2000, 640*mib, 20*second, 0).Exit(60 * second)
	path := written(t, nil, 0, message(h, 1))
	for factor, want := range map[string]int{"8": 0, "6": 0, "5": 1, "4": 1} {
		r := result(t, path, "--set", "anomaly.rules.alloc_size.factor="+factor)
		if len(r.OnlyChanged) != want || len(r.OnlyCurrent) != 0 {
			t.Errorf("factor %s: %q; want %d", factor, names(r.OnlyChanged), want)
		}
		if want == 1 && (r.OnlyChanged[0].Bytes != 640*mib || r.OnlyChanged[0].PID != 7 ||
			ruleOf(&r, "alloc_size") != "- | 1 warning | - | -") {
			t.Errorf("factor %s: %+v", factor, r)
		}
	}
}

// TestStateAtTheBeginning ends a process that frees most of what it allocated before the recording. The rules of
// gputap-leak know that from the state. The answer names the missing history of the other rules.
func TestStateAtTheBeginning(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-7")
	p := h.Process(7, second/2, "train")
	p.GPU = &schema.GPU{UUID: "GPU-0"}
	for i := range uint64(8) {
		p.Alloc(7, 0x1000+i, gib, second, 0)
	}
	state := consumer.NewReplay(0, leak.New(leak.Config{}), true, slog.New(slog.DiscardHandler))
	state.Apply(message(h, 1))
	for i := range uint64(7) {
		p.Free(7, 0x1000+i, 2*second, 0)
	}
	p.Exit(3 * second)
	path := written(t, state, 1, message(h, 2))

	stdout, err := typed(t, path, "-o", "json", "--set", "leak.rules.unfreed_at_exit.min_bytes=2GiB")
	r := decoded(t, stdout)
	if got := names(r.OnlyCurrent); app.ExitCode(err) != 4 || !slices.Equal(got, []string{"unfreed_at_exit train"}) ||
		r.OnlyCurrent[0].Bytes != gib || len(r.Missing) != 1 ||
		!strings.Contains(r.Missing[0], "before the recording") {
		t.Errorf("status %d, %q: %s", app.ExitCode(err), got, stdout)
	}
}
