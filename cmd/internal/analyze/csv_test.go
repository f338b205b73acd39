package analyze

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/analysis"
)

// TestFormats runs every command with each of its formats. The figures follow from recorded and lab.
func TestFormats(t *testing.T) {
	t.Parallel()
	memory := recorded(t, false)
	a := lab{step: mib, launches: 10, copies: 4, sets: 2, comm: "serve"}.recording(t)
	b := lab{step: mib, launches: 15, copies: 4, sets: 2, comm: "serve"}.recording(t)
	for args, want := range map[string]string{
		"usage " + memory: "HOST   PID  COMMAND  GPU    FIRST  LAST   PEAK  POINTS\n" +
			"gpu-7    7  train    GPU-0  100 B  50 B  150 B       3\n" +
			"gpu-7    8  serve    GPU-1   10 B  25 B   35 B       4\n\n" +
			"frees of memory whose allocation was not seen: 1\n",
		"usage " + memory + " --step 100s --pid 8 --by class": "managed",
		"usage " + memory + " -o csv":                         "gpu,series,time,unix_ns,bytes,cluster,start\n",
		"launches " + a + " -o csv":                           "gpu-7,7,train,kernel,axpy,,,,,10,",
		"bandwidth " + a:                                      "set        -       -                2  2.00 MiB  -\n",
		"bandwidth " + a + " -o csv":                          "gpu-7,7,train,,set,,,2,2097152,,,test,",
		"diff " + a + " " + b + " -o csv":                     "comm,rank,what,measure,name,a,b,change\n",
		"diff -o csv " + a + " " + b:                          "train,1,kernel,launches,axpy,10,15,5\n",
		"watermark " + memory + " -o csv":                     "gpu-7,7,train,GPU-0,150," + at(2) + ",0x100,100,",
		"diff --comm serve -o csv " + a + " " + b:             "serve,,process,peak_bytes,,20,20,0\n",
	} {
		stdout, err := typed(t, strings.Fields(args)...)
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", args, err, stdout, want)
		}
	}
}

func TestPeakTimeInCSVHasNanoseconds(t *testing.T) {
	t.Parallel()
	when := app.Time{Time: wallStart.Add(1234567890 * time.Nanosecond)}
	r := &Result[Peak]{Processes: []Process[Peak]{{GPUs: map[string]Peak{}}}}
	r.Processes[0].add(&analysis.GPU{UUID: "GPU-0"}, Peak{1, when, Live{List: []Allocation{{}}}}, 1)
	var out strings.Builder
	if err := writeCSV(&out, r); err != nil || !strings.Contains(out.String(), ",2023-11-14T22:13:21.234567890Z,") {
		t.Errorf("%v, %s", err, out.String())
	}
}

// TestLaunchesInCSVEqualJSON compares each row with the answer in JSON about a recording of real programs.
func TestLaunchesInCSVEqualJSON(t *testing.T) {
	t.Parallel()
	const path = "../harness/corpus/testdata/first/group-2.gputap"
	type figures struct {
		Launches    uint64
		PerSecond   float64  `json:"per_second"`
		LastMinute  *float64 `json:"per_second_last_minute"`
		Share       float64
		Kernel      string
		Handle      string
		Kernels     uint64 `json:"kernels_per_launch"`
		Partial     bool
		Grid, Block [3]uint64
		SharedBytes uint64 `json:"shared_bytes"`
	}
	var answer struct {
		Processes []struct {
			Host, Cluster, Start, Comm string
			PID                        int
			TopKernels                 []struct {
				figures
				Shapes []figures
			} `json:"top_kernels"`
			Graphs []figures
		}
	}
	text, err := typed(t, "launches", path, "-o", "json")
	check(t, err)
	check(t, json.Unmarshal([]byte(text), &answer))
	if strings.Contains(text, `\u003c`) || !strings.Contains(text, "<") {
		t.Error("names of kernels have escapes")
	}
	text, err = typed(t, "launches", path, "-o", "csv")
	check(t, err)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	check(t, err)
	want := [][]string{strings.Split("host,pid,comm,what,name,grid,block,block_threads,shared_bytes,launches,"+
		"per_second,per_second_last_minute,share,kernels_per_launch,partial,cluster,start", ",")}
	graphs := 0
	for _, p := range answer.Processes {
		add := func(what, name string, f *figures, shape, graph []string) {
			minute := ""
			if f.LastMinute != nil {
				minute = strconv.FormatFloat(*f.LastMinute, 'f', -1, 64)
			}
			want = append(want, slices.Concat([]string{p.Host, strconv.Itoa(p.PID), p.Comm, what, name}, shape,
				[]string{fmt.Sprint(f.Launches), strconv.FormatFloat(f.PerSecond, 'f', -1, 64), minute,
					strconv.FormatFloat(f.Share, 'f', -1, 64)}, graph, []string{p.Cluster, p.Start}))
		}
		for _, k := range p.TopKernels {
			add("kernel", k.Kernel, &k.figures, []string{"", "", "", ""}, []string{"", ""})
			for _, s := range k.Shapes {
				add("shape", k.Kernel, &s, []string{fmt.Sprintf("%d×%d×%d", s.Grid[0], s.Grid[1], s.Grid[2]),
					fmt.Sprintf("%d×%d×%d", s.Block[0], s.Block[1], s.Block[2]),
					fmt.Sprint(s.Block[0] * s.Block[1] * s.Block[2]), fmt.Sprint(s.SharedBytes)}, []string{"", ""})
			}
		}
		for _, g := range p.Graphs {
			graphs++
			add("graph", g.Handle, &g, []string{"", "", "", ""}, []string{fmt.Sprint(g.Kernels), fmt.Sprint(g.Partial)})
		}
	}
	if graphs == 0 || !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("%d rows, want %d, %d of them graphs", len(rows), len(want), graphs)
	}
}
