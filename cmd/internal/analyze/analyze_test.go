package analyze

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

const second = schema.KTime(time.Second)

// wallStart is the wall time at which the hosts of consumertest booted.
var wallStart = time.Unix(1_700_000_000, 0).UTC()

// recorded writes a recording of two processes. The first message belongs to the state if state is true.
//
//	train (7): 100 at 1 s, 50 at 2 s on GPU-0, frees 100 at 3 s; 30 pinned, which is host memory; never frees 50
//	serve (8): 10 at 1 s, 20 at 4 s on GPU-1, 5 managed at 5 s, frees 10 at 6 s and ends at 9 s
func recorded(t *testing.T, state bool) string {
	t.Helper()
	messages := twoProcesses(t)
	path := filepath.Join(t.TempDir(), "run.gputap")
	file, err := os.Create(path)
	check(t, err)
	w, err := recording.NewWriter(file)
	check(t, err)
	stream := recording.Stream{Name: "GPUTAP_EV_000", Created: wallStart, State: recording.KnowledgeComplete}
	message := func(i int) *recording.Message {
		return &recording.Message{Sequence: uint64(1 + i), Stored: wallStart.Add(time.Duration(2*i) * time.Second),
			Subject: schema.Subject(0, "test", "gpu-7", schema.KindMemory), Data: messages[i]}
	}
	first := 0
	if state {
		first = 1
		p := consumer.NewReplay(0, leak.New(leak.Config{}), true, slog.New(slog.DiscardHandler))
		p.Apply(message(0))
		check(t, p.Sections(w.AddSection))
		stream.After = 1
	}
	check(t, w.AddStreams(recording.Selection{}, []recording.Stream{stream}))
	for i := first; i < len(messages); i++ {
		check(t, w.Append(message(i)))
	}
	check(t, w.Close())
	return path
}

// twoProcesses returns the three messages of recorded.
func twoProcesses(t *testing.T) [][]byte {
	t.Helper()
	h := consumertest.Memory(t, "gpu-7")
	train, serve := h.Process(7, second/2, "train"), h.Process(8, second/2, "serve")
	train.GPU, serve.GPU = &schema.GPU{UUID: "GPU-0"}, &schema.GPU{UUID: "GPU-1", Ordinal: 1}
	train.Alloc(7, 0x100, 100, second, 0)
	serve.Alloc(8, 0x100, 10, second, 0)
	messages := [][]byte{bytes.Clone(h.Message())}
	train.Alloc(9, 0x200, 50, 2*second, 0)
	train.Call("cuMemHostAlloc", 7, schema.Memory{Time: 2 * second, Ptr: 0x300, Bytes: 30})
	train.Free(7, 0x100, 3*second, 0)
	messages = append(messages, bytes.Clone(h.Message()))
	serve.Alloc(8, 0x200, 20, 4*second, 0)
	serve.Call("cuMemAllocManaged", 8, schema.Memory{Time: 5 * second, Ptr: 0x300, Bytes: 5})
	serve.Free(8, 0x100, 6*second, 0).Free(8, 0x900, 7*second, 0).Exit(9 * second)
	return append(messages, bytes.Clone(h.Message()))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// typed runs gputap analyze.
func typed(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	p := &app.Process{Stdout: &out, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)}
	cmd := Command(p)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// at returns a wall time as JSON and CSV spell it.
func at(seconds int) string {
	return wallStart.Add(time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05.000000000Z07:00")
}

// object decodes JSON.
func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	check(t, json.Unmarshal([]byte(text), &o))
	return o
}

// brief shortens the answer: PID, GPU, amount, time, and the live allocations.
func brief(t *testing.T, text, amount, when string) (list []string) {
	t.Helper()
	for _, p := range object(t, text)["processes"].([]any) {
		process := p.(map[string]any)
		for gpu, f := range process["gpus"].(map[string]any) {
			figure := f.(map[string]any)
			line := fmt.Sprint(process["pid"], " ", gpu, " ", figure[amount], " ", figure[when])
			for _, l := range figure["live"].([]any) {
				a := l.(map[string]any)
				line += fmt.Sprintf(" %v:%v:%v:%v:%v:%v", a["address"], a["bytes"], a["class"], a["tid"], a["symbol"],
					a["time"])
			}
			list = append(list, line)
		}
	}
	return list
}

// The figures were computed by hand, from the comment of recorded. With a part of the events in the state they are the
// same: the allocations at the beginning are known.
func TestWatermarkAndLeakage(t *testing.T) {
	t.Parallel()
	for _, state := range []bool{false, true} {
		path := recorded(t, state)
		stdout, err := typed(t, "watermark", path, "-o", "json")
		check(t, err)
		const device = "device:8:cuMemAlloc_v2:"
		want := []string{
			"7 GPU-0 150 " + at(2) + " 0x100:100:device:7:cuMemAlloc_v2:" + at(1) +
				" 0x200:50:device:9:cuMemAlloc_v2:" + at(2),
			"8 GPU-1 35 " + at(5) + " 0x200:20:" + device + at(4) + " 0x100:10:" + device + at(1) +
				" 0x300:5:managed:8:cuMemAllocManaged:" + at(5),
		}
		if got := brief(t, stdout, "peak_bytes", "peak_time"); !reflect.DeepEqual(got, want) {
			t.Errorf("state %t: got\n%s\nwant\n%s", state, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		o := object(t, stdout)
		if o["complete"] != true || o["findings"].(map[string]any)["unmatched_frees"] != 1. {
			t.Errorf("state %t: %s", state, stdout)
		}
		stdout, err = typed(t, "leakage", path, "-o", "json", "--comm", "serve")
		check(t, err)
		want = []string{"8 GPU-1 25 <nil> 0x200:20:" + device + at(4) + " 0x300:5:managed:8:cuMemAllocManaged:" + at(5)}
		if got := brief(t, stdout, "live_bytes", ""); !reflect.DeepEqual(got, want) {
			t.Errorf("state %t: got %q, want %q", state, got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	point := func(seconds, bytes int) string {
		return fmt.Sprintf("[%d,%d]", wallStart.Add(time.Duration(seconds)*time.Second).UnixNano(), bytes)
	}
	points := func(list ...string) string { return `"points":[` + strings.Join(list, ",") + "]" }
	for args, want := range map[string]string{
		"--pid 7": points(point(1, 100), point(2, 150), point(3, 50)),
		"--pid 8": points(point(1, 10), point(4, 30), point(5, 35), point(6, 25)),
		// the state has 10 bytes since 1 s, and the recording begins with the message that was stored at 2 s
		"--pid 8 state":        points(point(2, 10), point(4, 30), point(5, 35), point(6, 25)),
		"--pid 8 --since idle": points(point(3, 10), point(4, 30), point(5, 35), point(6, 25)),
		"--pid 8 --step 100s":  points(point(5, 35), point(6, 25)),
		"--pid 8 --by class":   `{"name":"managed",` + points(point(5, 5)) + "}",
		"--pid 7 --by thread":  `{"name":"9 train",` + points(point(2, 50)) + "}",
		"--pid 7 --since 2023": points(point(1, 100), point(2, 150), point(3, 50)),
	} {
		words := strings.Fields(args)
		state := words[len(words)-1] == "state"
		if state {
			words = words[:len(words)-1]
		}
		for i := range words {
			switch words[i] {
			case "2023": // behind the first message; memory from before counts from there
				words[i] = wallStart.Add(time.Second).Format(time.RFC3339)
			case "idle":
				words[i] = wallStart.Add(3 * time.Second).Format(time.RFC3339)
			}
		}
		stdout, err := typed(t, append([]string{"usage", recorded(t, state), "-o", "json"}, words...)...)
		check(t, err)
		if !strings.Contains(stdout, want) || len(object(t, stdout)["processes"].([]any)) != 1 {
			t.Errorf("%s: got %s\nwant %s", args, stdout, want)
		}
	}
	stdout, err := typed(t, "usage", recorded(t, false), "--format", "nsys-tsv", "--pid", "7")
	const want = "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n0\t100\t0\t0\t100\n" +
		"1000000000\t150\t0\t0\t150\n2000000000\t50\t0\t0\t50\n"
	if err != nil || stdout != want {
		t.Errorf("got %q, %v", stdout, err)
	}
}

func TestConditionsAndIncompleteData(t *testing.T) {
	t.Parallel()
	path := recorded(t, false)
	data, err := os.ReadFile(path)
	check(t, err)
	cut := filepath.Join(t.TempDir(), "cut.gputap")
	check(t, os.WriteFile(cut, data[:len(data)-10], 0o600))
	foreign := filepath.Join(t.TempDir(), "foreign")
	check(t, os.WriteFile(foreign, []byte("something else"), 0o600))
	for args, want := range map[string]struct {
		status int
		err    string
	}{
		"leakage " + path + " --fail-on leak>49B":         {3, "leak>49B: it is 50"},
		"leakage " + path + " --fail-on leak>50":          {0, ""},
		"watermark " + path + " --fail-on peak>0.1KiB":    {3, "peak>0.1KiB: it is 150"},
		"usage " + path + " --fail-on unmatched_frees>0":  {3, "unmatched_frees>0: it is 1"},
		"leakage " + path + " --fail-on peak>149":         {3, "peak>149: it is 150"},
		"leakage " + path + " --fail-on peak>150":         {0, ""},
		"watermark " + path + " --fail-on leak>49B":       {3, "leak>49B: it is 50"},
		"usage " + path + " --fail-on leak>49B":           {3, "leak>49B: it is 50"},
		"usage " + path + " --fail-on peak>149":           {3, "peak>149: it is 150"},
		"launches " + path + " --fail-on leak>0":          {2, "this command has no measures"},
		"bandwidth " + path + " --fail-on failed_calls>0": {2, "this command has no measures"},
		"usage " + path + " --fail-on size>0":             {2, "use MEASURE>LIMIT"},
		"usage " + path + " --fail-on leak>5XB":           {2, "use MEASURE>LIMIT"},
		"watermark " + cut:                                {4, "are damaged"},
		"watermark " + foreign:                            {1, "not a recording of gputap"},
		"watermark " + filepath.Join(foreign, "none"):     {1, "open the recording"},
		"watermark " + path + " -o xml":                   {2, "text, json, csv"},
		"usage " + path + " --by colour":                  {2, "class, gpu, name, stack, symbol, thread"},
		"usage " + path + " -o nsys-tsv":                  {2, "2 are selected"},
		"usage " + path + " --since yesterday":            {2, "--since"},
		"watermark " + path + " --host [":                 {2, "--host"},
	} {
		_, err := typed(t, strings.Fields(args)...)
		if got := app.ExitCode(err); got != want.status || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: status %d, %v; want %d, %s", args, got, err, want.status, want.err)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	stdout, err := typed(t, "watermark", recorded(t, false))
	check(t, err)
	const want = `HOST   PID  COMMAND  GPU     PEAK  ALLOCATIONS  TIME
gpu-7    7  train    GPU-0  150 B            2  2023-11-14 22:13:22.000Z
gpu-7    8  serve    GPU-1   35 B            3  2023-11-14 22:13:25.000Z

gpu-7/7 train on GPU-0
       1 × 100 B              100 B  device   thread 7 train, cuMemAlloc_v2, oldest 22:13:21.000Z
       1 × 50 B                50 B  device   thread 9 train, cuMemAlloc_v2, oldest 22:13:22.000Z

gpu-7/8 serve on GPU-1
       1 × 20 B                20 B  device   thread 8 serve, cuMemAlloc_v2, oldest 22:13:24.000Z
       1 × 10 B                10 B  device   thread 8 serve, cuMemAlloc_v2, oldest 22:13:21.000Z
       1 × 5 B                  5 B  managed  thread 8 serve, cuMemAllocManaged, oldest 22:13:25.000Z

frees of memory whose allocation was not seen: 1
`
	if stdout != want {
		t.Errorf("got\n%s\nwant\n%s", stdout, want)
	}
	stdout, err = typed(t, "leakage", recorded(t, false), "-o", "csv", "--pid", "7")
	check(t, err)
	row := "gpu-7,7,train,GPU-0,50,,0x200,50,device,9,train,cuMemAlloc_v2," + at(2) +
		",,,test,2023-11-14T22:13:20.500000000Z"
	if want := strings.Join(csvColumns, ",") + "\n" + row + "\n"; stdout != want {
		t.Errorf("got\n%s\nwant\n%s", stdout, want)
	}
}
