package analyze

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/schema"
)

// TestStacksAndNamesInTextAndCSV reads an export with a call stack and a variable, without names of processes.
func TestStacksAndNamesInTextAndCSV(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.sqlite")
	db, err := sql.Open("sqlite", path)
	check(t, err)
	_, err = db.Exec(export)
	check(t, err)
	check(t, db.Close())
	for args, want := range map[string][]string{
		"watermark": {
			"nsight  4242  -        1    12.06 KiB            3  2023-11-14 22:13:20.000Z\n",
			"\nnsight/4242 on GPU 1\n" +
				"       1 × 8.00 KiB        8.00 KiB  device   oldest 22:13:20.000Z\n" +
				"       1 × 4.00 KiB        4.00 KiB  device   thread 4243, cudaMalloc, oldest 22:13:20.000Z\n" +
				"           main (app)\n" +
				"       1 × 64 B                64 B  managed  oldest 22:13:20.000Z\n" +
				"           variable table\n"},
		"watermark -o csv": {",allocated,name,stack,cluster,start\n",
			",4096,device,4243,,cudaMalloc,2023-11-14T22:13:20.000001000Z,,main (app);cudaMalloc (libcudart),nsight,",
			",64,managed,0,,,2023-11-14T22:13:20.000003000Z,table,,nsight,"},
		"leakage -o csv": {",table,,nsight,"},
	} {
		words := strings.Fields(args)
		stdout, err := typed(t, append([]string{words[0], path}, words[1:]...)...)
		if err != nil && app.ExitCode(err) != 4 {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(stdout, text) {
				t.Errorf("%s: got\n%s\nwithout\n%s", args, stdout, text)
			}
		}
	}
}

// TestNoTwoRowsReadTheSame: sizes that differ by less than the text shows share a row; places of one call do not.
func TestNoTwoRowsReadTheSame(t *testing.T) {
	t.Parallel()
	stack := func(frames ...string) []string {
		return append([]string{"cuMemAlloc_v2 (libcuda.so.1)", "cudaMalloc (libcudart.so.12)"}, frames...)
	}
	one := Allocation{Bytes: 8 * mib, Class: "device", TID: 7, Thread: "train", Symbol: "cuMemAlloc_v2",
		Time: app.Time{Time: wallStart}}
	near, loads, saves, driver := one, one, one, one
	near.Bytes += 512
	loads.Name, loads.Stack = "weights", stack("load (app)", "run (app)", "main (app)", "_start (app)")
	saves.Stack = stack("save(char const*) (app)", "main (app)")
	driver.Stack = stack()
	var out strings.Builder
	writeRows(&out, []Allocation{one, near, loads, saves, driver})
	const caller = "  device   thread 7 train, cuMemAlloc_v2, oldest 22:13:20.000Z\n"
	const want = "       2 × 8.00 MiB       16.00 MiB" + caller +
		"       1 × 8.00 MiB        8.00 MiB" + caller +
		"           variable weights: load (app) < run (app) < main (app) < …\n" +
		"       1 × 8.00 MiB        8.00 MiB" + caller +
		"           save(char const*) (app) < main (app)\n" +
		"       1 × 8.00 MiB        8.00 MiB" + caller +
		"           cuMemAlloc_v2 (libcuda.so.1) < cudaMalloc (libcudart.so.12)\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestFoldedStackHasOneSeparator(t *testing.T) {
	t.Parallel()
	if got := folded([]string{"leaf", "a;b", "main"}); got != "main;a:b;leaf" {
		t.Errorf("got %s", got)
	}
}

// TestHeadingNamesWhatIsKnown: a GPU without a UUID has the number of its device, or no name.
func TestHeadingNamesWhatIsKnown(t *testing.T) {
	t.Parallel()
	for gpu, want := range map[string]string{
		"GPU-a0b1c2d3-e4f5": "gpu-7/7 train on GPU-a0b1c2d3", "0": "gpu-7/7 train on GPU 0",
		unknownGPU: "gpu-7/7 train on an unknown GPU",
	} {
		if got := heading(&Who{Host: "gpu-7", PID: 7, Comm: "train"}, false, gpu); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNameOfMemoryLeavesOutWhatIsUnknown(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]*analysis.Group{
		"device, 4.00 KiB and more": {Class: schema.ClassDevice},
		"device, thread train, cudaMalloc, 4.00 KiB and more": {Class: schema.ClassDevice, Thread: "train",
			Symbol: "cudaMalloc"},
	} {
		if got := nameOfMemory(g, 4097); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
