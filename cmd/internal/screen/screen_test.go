package screen

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/harness/terminal"
	"github.com/gputap/gputap/cmd/internal/report"
)

const down, up, end, home, pageDown = "\x1b[B", "\x1b[A", "\x1b[F", "\x1b[H", "\x1b[6~"

var pidColumn = regexp.MustCompile(`(?m)^[ >]\S+ +\S+ +\S+ +(\d+) `) // of a screen that shows clusters

// shown returns the PIDs of the rows on a screen.
func shown(screen string) (pids []string) {
	for _, m := range pidColumn.FindAllStringSubmatch(screen, -1) {
		pids = append(pids, m[1])
	}
	return pids
}

// shows waits until a screen has a text and the rows of these processes.
func shows(t *testing.T, tty *terminal.Terminal, text string, pids ...string) {
	t.Helper()
	screen, ok := tty.Await(func(screen string) bool {
		return strings.Contains(screen, text) && slices.Equal(shown(screen), pids)
	})
	if !ok {
		t.Errorf("%s: shows\n%v\nwant\n%v", text, shown(screen), pids)
	}
}

// TestOrdersEqualAnotherSort goes through all orders with the key >, and compares each screen with a sort of keys made
// of text.
func TestOrdersEqualAnotherSort(t *testing.T) {
	t.Parallel()
	source := fleet(50)
	tty := run(t, source, options(Colours), 250, 70)
	number := func(v float64) string { return fmt.Sprintf("%020.3f", 1e15-v) } // the largest first
	optional := func(v *float64) string {
		if v == nil {
			return number(-1)
		}
		return number(*v)
	}
	keys := []struct {
		name string
		of   func(a *answer.Activity) string
	}{
		{"live", func(a *answer.Activity) string {
			return number(float64(a.LiveBytes)) + number(float64(a.UnfreedBytes))
		}},
		{"peak", func(a *answer.Activity) string { return number(float64(a.PeakBytes)) }},
		{"growth", func(a *answer.Activity) string {
			sum := 0.0
			for _, v := range a.Verdicts {
				sum += float64(v.SlopeBytesPerHour)
			}
			return number(sum)
		}},
		{"launches", func(a *answer.Activity) string { return optional(a.LaunchRate) }},
		{"wait", func(a *answer.Activity) string { return optional(a.WaitShare) }},
		{"copied", func(a *answer.Activity) string {
			if a.Copied == nil {
				return number(-1)
			}
			return number(float64(*a.Copied))
		}},
		{"unfreed", func(a *answer.Activity) string { return number(float64(a.UnfreedBytes)) }},
		{"allocations", func(a *answer.Activity) string { return number(float64(a.LiveAllocations)) }},
		{"started", func(a *answer.Activity) string { return number(float64(a.Start.Unix())) }},
		{"host", func(a *answer.Activity) string { return "" }},
	}
	if len(keys) != len(Orders()) {
		t.Fatalf("the test knows %d orders, the screen has %v", len(keys), Orders())
	}
	o := overview(50)
	for _, k := range keys {
		want := map[string]string{}
		var pids []string
		for _, a := range o.Processes {
			pid := fmt.Sprint(a.PID)
			want[pid] = k.of(a) + fmt.Sprintf("%-20s%-60s%09d", a.Cluster, a.Host, a.PID)
			pids = append(pids, pid)
		}
		sort.Slice(pids, func(i, j int) bool { return want[pids[i]] < want[pids[j]] })
		shows(t, tty, "  by "+k.name+"\n", pids...)
		tty.Type(">")
	}
	tty.AwaitText("  by live\n")
	tty.Type("<")
	tty.AwaitText("  by host\n")
}

// TestOrderIsVisible: on a narrow screen the column of the order takes the place of another.
func TestOrderIsVisible(t *testing.T) {
	t.Parallel()
	tty := run(t, fleet(3), options(Colours), 80, 24)
	for range orders {
		screen := tty.AwaitText("  by ")
		name := regexp.MustCompile(`  by (\w+)`).FindStringSubmatch(screen)[1]
		at := slices.IndexFunc(orders, func(o order) bool { return o.name == name })
		if !strings.Contains(lineWith(screen, "STATE"), orders[at].title) {
			t.Errorf("by %s: the columns are %s", name, lineWith(screen, "STATE"))
		}
		tty.Type(">")
		tty.AwaitText("  by " + orders[(at+1)%len(orders)].name + "\n")
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	tty := run(t, fleet(20), options(Colours), 200, 40)
	tty.AwaitText("gpu-104")
	tty.Type("/GPU-10")
	tty.AwaitText("show rows with: GPU-10_")
	tty.Type("9\x7f3\r") // 9, backspace, 3, enter
	shows(t, tty, `4 rows with "GPU-103"`, "1012", "1013", "1014", "1015")
	for _, row := range []struct{ text, pid string }{
		{"growing", "4242"}, {"triton", "4242"}, {"slurm:17", "4021337"}, {"bo", "7"},
	} {
		tty.Type("/" + strings.Repeat("\x7f", 20) + row.text + "\r")
		shows(t, tty, fmt.Sprintf("1 row with %q", row.text), row.pid)
	}
	tty.Type("\x1b") // esc
	if screen, ok := tty.Await(func(screen string) bool { return len(shown(screen)) == 24 }); !ok {
		t.Errorf("without a filter the screen is\n%s", screen)
	}
}

// TestGroupsEqualASum groups random allocations, and compares with sums by a key of text.
func TestGroupsEqualASum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	p := &report.Process{}
	bytes, counts, oldest := map[string]uint64{}, map[string]uint64{}, map[string]time.Time{}
	for i := range 1000 {
		a := report.Allocation{Address: fmt.Sprint(i), Bytes: 1 + random.Uint64N(1<<random.UintN(36)),
			Class: []string{"device", "pool"}[random.IntN(2)], GPU: fmt.Sprint("GPU-", random.IntN(3)),
			TID: random.Uint32N(4), Thread: "t", Since: ago(time.Duration(random.IntN(1e6)) * time.Millisecond)}
		p.Largest = append(p.Largest, a)
		key := fmt.Sprint(a.TID, a.Class, a.GPU, math.Pow(2, math.Floor(math.Log2(float64(a.Bytes)))))
		if counts[key] == 0 || a.Since.Before(oldest[key]) {
			oldest[key] = a.Since
		}
		bytes[key] += a.Bytes
		counts[key]++
	}
	last := uint64(math.MaxUint64)
	all := groups(p, now)
	for _, g := range all {
		key := fmt.Sprint(g.tid, g.class, g.gpu, float64(g.size))
		if g.bytes != bytes[key] || g.count != counts[key] || !g.oldest.Equal(oldest[key]) || g.bytes > last ||
			uint64(len(g.list)) != g.count {
			t.Errorf("group %s: %d bytes in %d, oldest %s; want %d in %d, %s", key, g.bytes, g.count, g.oldest,
				bytes[key], counts[key], oldest[key])
		}
		last = g.bytes
	}
	if len(all) != len(counts) {
		t.Errorf("%d groups, want %d", len(all), len(counts))
	}
}

// TestDrillDown opens a process with the cursor, goes to the end of its groups, and back.
func TestDrillDown(t *testing.T) {
	t.Parallel()
	tty := run(t, fleet(40), options(Colours), 160, 24)
	tty.AwaitText(">suspect")
	tty.Type(end)
	tty.AwaitText(">ended,gap    prod      gpu-2")
	tty.Type(home)
	tty.AwaitText(">suspect")
	tty.Type(pageDown)
	tty.AwaitText(">running      prod      gpu-104")
	tty.Type(home + down + "\r")
	tty.AwaitText("prod/gpu-2/4242 Triton?[2J", "0 of 12 allocations")
	tty.Type("\x1b")
	tty.AwaitText(">growing,late")
	tty.Type(up + "\r")
	tty.AwaitText("prod/gpu-17/4021337", "cache")
	tty.Type(down + "\r")
	screen := tty.AwaitText("ADDRESS")
	if n := strings.Count(screen, "cuMemCreate"); n != 2 || !strings.Contains(screen, "from 1 GiB to below 2 GiB") {
		t.Errorf("the group of two handles shows\n%s", screen)
	}
	tty.Type("\x1b")
	tty.AwaitText(">        4021337 python3", "cache")
	tty.Type("\x1b")
	tty.AwaitText("  by live")
}

func TestResize(t *testing.T) {
	t.Parallel()
	tty := run(t, fleet(40), options(Colours), 80, 24)
	for _, size := range []struct {
		width, height int
		has, lacks    string
	}{
		{80, 24, "GROWTH/H\n", "PEAK"}, {160, 12, "STATE        CLUSTER", "AGE"}, {40, 10, "PID USER\n", "COMMAND"},
		{3, 2, "19…\n? …", "STATE"}, {250, 70, "CLUSTER", "PID USER\n"},
	} {
		tty.Resize(size.width, size.height)
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGWINCH); err != nil { // it has no controlling terminal
			t.Fatal(err)
		}
		screen, ok := tty.Await(func(screen string) bool {
			return strings.Contains(screen, size.has) && !strings.Contains(screen, size.lacks)
		})
		if !ok {
			t.Errorf("%d by %d shows\n%s", size.width, size.height, screen)
		}
	}
}

var colourPattern = regexp.MustCompile(`\x1b\[[0-9;:]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;:]*m`)

// TestColoursAddToWords shows the same text with and without colours.
func TestColoursAddToWords(t *testing.T) {
	t.Parallel()
	texts := map[Styles]string{}
	for _, styles := range []Styles{Marks, Colours} {
		tty := run(t, fleet(5), options(styles), 100, 24)
		tty.AwaitText(">suspect")
		tty.Type(down)
		texts[styles] = tty.AwaitText(">growing", "q quit")
		if has := colourPattern.MatchString(tty.Written()); has != (styles == Colours) {
			t.Errorf("styles %d: has colours: %t", styles, has)
		}
	}
	if texts[Marks] != texts[Colours] {
		t.Errorf("without colours\n%s\nwith colours\n%s", texts[Marks], texts[Colours])
	}
}

// TestKeysWorkWhileAQuestionWaits asks a source that does not answer before the end of the test.
func TestKeysWorkWhileAQuestionWaits(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	silent := &fixed{overview: func(ctx context.Context) (*answer.Overview, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	tty := run(t, silent, options(Colours), 80, 24)
	tty.AwaitText("asking the consumers")
	<-asked
	tty.Type("r?")
	tty.AwaitText("Any key closes")
	tty.Type("x ")
	tty.AwaitText("asking the consumers")
	if len(asked) != 0 {
		t.Errorf("%d more questions run at once", len(asked))
	}
}
