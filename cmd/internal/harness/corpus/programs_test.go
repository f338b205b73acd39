package corpus

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/stub"
)

// missing is the exit status of a program without its package or without a GPU.
const missing = 77

// line is the last line of a program, and its entry in labels.json.
type line struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"`
	Expect      []string `json:"expect"`
	LeakedBytes uint64   `json:"leaked_bytes"`
	Seconds     float64  `json:"seconds"`
	PID         uint32   `json:"pid"`
	Recording   string   `json:"recording"`
}

// python returns the interpreter. A script of a version manager in PATH would take half a second.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("GPUTAP_REQUIRE_PYTHON") == "1" {
		t.Fatal("no python3")
	}
	t.Skip("no python3")
	return ""
}

// programRun is how to run one program.
type programRun struct {
	name, label string
	command     []string // arguments of the interpreter
}

var listed = regexp.MustCompile(`run_one\(\[([^]]*)\]`)

// programsOf returns the programs of a file; none if it is a part of programs.
func programsOf(t *testing.T, file string) (all []programRun) {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(file), ".py")
	switch kind, _, _ := strings.Cut(name, "_"); kind {
	case "leak", "ok":
		label := map[string]string{"leak": "leak", "ok": "innocent"}[kind]
		return []programRun{{name, label, []string{"-B", file}}}
	case "odd":
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := listed.FindSubmatch(source)
		if m == nil {
			t.Fatalf("%s: no list of programs", file)
		}
		for one := range strings.SplitSeq(string(m[1]), ", ") {
			all = append(all, programRun{name + "_" + one, "odd", []string{"-B", file, one}})
		}
	}
	return all
}

// TestProgramsRunOrNameWhatIsMissing runs one turn of each program, on most machines without a GPU.
func TestProgramsRunOrNameWhatIsMissing(t *testing.T) {
	files, err := filepath.Glob("programs/*_*.py")
	if err != nil || len(files) < 45 {
		t.Fatalf("%d programs, %v", len(files), err)
	}
	interpreter := python(t)
	var runs []programRun
	for _, file := range files {
		runs = append(runs, programsOf(t, file)...)
	}
	for _, r := range runs {
		name, label := r.name, r.label
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(name) > 15 {
				t.Errorf("%q does not fit into the name of a process", name)
			}
			out, err := exec.CommandContext(t.Context(), interpreter, append(r.command, "--seconds", "0")...).Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == missing {
				if !strings.HasPrefix(string(exit.Stderr), name+": cannot run: ") || len(out) > 0 {
					t.Errorf("status %d with output %q, error output %q", missing, out, exit.Stderr)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, exit.Stderr)
			}
			var l line
			if err := json.Unmarshal(out, &l); err != nil {
				t.Fatalf("output %q: %v", out, err)
			}
			if l.Name != name || l.Label != label || (label == "innocent") != (len(l.Expect) == 0) {
				t.Errorf("last line %+v", l)
			}
		})
	}
}

// TestRunnerCollectsLabels runs the programs without a framework with the stub driver, whose totals are the truth.
func TestRunnerCollectsLabels(t *testing.T) {
	driver, err := filepath.Abs("../../../../bin/stub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(driver, "libcuda.so.1")); err != nil {
		t.Skipf("%v; run make stub", err)
	}
	out, truth := t.TempDir(), t.TempDir()
	recorder := `sh -c 'trap "echo recorded > {file}; exit 0" INT; while :; do sleep 0.1; done'`
	cmd := exec.CommandContext(t.Context(), python(t), "-B", "programs/run.py",
		"--programs", "leak_raw,leak_managed,leak_array,ok_processes,ok_llm_server",
		"--parallel", "5", "--seconds", "1.2", "--settle", "0.1", "--out", out, "--record", recorder)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+driver, "GPUTAP_STUB_TRUTH="+truth)
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	data, err := os.ReadFile(filepath.Join(out, "labels.json"))
	if err != nil {
		t.Fatal(err)
	}
	var labels struct{ Programs map[string]line }
	if err := json.Unmarshal(data, &labels); err != nil {
		t.Fatal(err)
	}
	if recorded, err := os.ReadFile(filepath.Join(out, labels.Programs["leak_raw"].Recording)); err != nil ||
		string(recorded) != "recorded\n" {
		t.Errorf("the recording is %q, %v", recorded, err)
	}
	compareWithStub(t, labels.Programs, truth)
}

// compareWithStub compares the bytes that each program says to have leaked with the bytes live in the stub at its end.
func compareWithStub(t *testing.T, programs map[string]line, truth string) {
	t.Helper()
	images, err := stub.Images(truth)
	if err != nil {
		t.Fatal(err)
	}
	live := map[uint32]uint64{}
	for _, image := range images {
		live[image.PID] = image.LiveBytes
	}
	// At its end, each program needs these bytes; the rest of its live bytes leaked.
	needed := map[string]uint64{"leak_raw": 0, "leak_managed": 16<<20 + 128<<10, "leak_array": 4<<20 + 1<<20}
	for name, bytes := range needed {
		if got := programs[name]; got.LeakedBytes == 0 || got.LeakedBytes+bytes != live[got.PID] {
			t.Errorf("%s leaked %d bytes; %d are live", name, got.LeakedBytes, live[got.PID])
		}
	}
	if got := programs["ok_processes"]; got.PID == 0 || got.LeakedBytes != 0 || live[got.PID] != 0 {
		t.Errorf("ok_processes %+v; %d bytes are live", got, live[got.PID])
	}
	const weights, kv = 64 * 35 << 16, 32 * 168 << 20
	if got := programs["ok_llm_server"]; got.LeakedBytes != 0 || live[got.PID] != weights+kv {
		t.Errorf("ok_llm_server leaked %d bytes; %d are live", got.LeakedBytes, live[got.PID])
	}
}
