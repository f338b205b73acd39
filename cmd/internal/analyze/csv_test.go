package analyze

import (
	"strings"
	"testing"
	"time"

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
		"usage " + memory + " -o csv":                         "host,pid,comm,gpu,series,time,unix_ns,bytes\n",
		"launches " + a + " -o csv":                           "host,pid,comm,kernel,launches\ngpu-7,7,train,axpy,10\n",
		"bandwidth " + a:                                      "set        -       -                2  2.00 MiB  -\n",
		"bandwidth " + a + " -o csv":                          "gpu-7,7,train,,set,,,2,2097152,,\n",
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
	when := wallStart.Add(1234567891 * time.Nanosecond)
	r := &Result[Peak]{Processes: []Process[Peak]{{GPUs: map[string]Peak{}}}}
	r.Processes[0].add(&analysis.GPU{UUID: "GPU-0"}, Peak{1, when, Live{List: []Allocation{{}}}}, 1)
	var out strings.Builder
	if err := writeCSV(&out, r); err != nil || !strings.Contains(out.String(), ",2023-11-14T22:13:21.234567891Z,") {
		t.Errorf("%v, %s", err, out.String())
	}
}
