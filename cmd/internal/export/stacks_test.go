package export

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// nsightTables are those of an export of Nsight Systems with call stacks, and three stacks.
const nsightTables = `
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
	globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
	callchainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL,
	unresolved INTEGER, originalIP INTEGER, stackDepth INTEGER NOT NULL);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
	deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
	bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
	correlationId INTEGER, streamId INTEGER);
INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'cudaFree_v3020'), (3, 'cudaMalloc'),
	(4, '/opt/libcudart.so'), (5, 'load(Model&)'), (6, 'step(Batch&)'), (7, 'main'), (8, '/home/ann/train');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');
INSERT INTO CUDA_CALLCHAINS VALUES (1, 3, 4, NULL, 0, 0), (1, 5, 8, NULL, 0, 1), (1, 7, 8, NULL, 0, 2),
	(2, 3, 4, NULL, 0, 0), (2, 6, 8, NULL, 0, 1), (2, 7, 8, NULL, 0, 2);
`

// nsightExport writes an export with n allocations of two stacks, and some without one. It returns the sums that a
// profile must have by stack: objects and bytes allocated, objects and bytes in use.
func nsightExport(t *testing.T, n int) (path string, sums map[string][4]int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "report.sqlite")
	db, err := sql.Open("sqlite", path)
	check(t, err)
	_, err = db.Exec(nsightTables)
	check(t, err)
	sums = map[string][4]int64{}
	for i := range n {
		chain, bytes, at := i%3, int64(256*(i+1)), 1000*(i+1)
		_, err = db.Exec(`INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1 - 10, ?1 + 10, 0, 4242 << 24 | 7, ?2, 1, 0, ?3);
			INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?1, 4242 << 24, 0, 1, ?4, 0, ?5, 2, 0, NULL, ?2, 0)`,
			at, i+1, chain, (i+1)<<24, bytes)
		check(t, err)
		stack := []string{"cudaMalloc", "cudaMalloc;load(Model&);main", "cudaMalloc;step(Batch&);main"}[chain]
		v := sums[stack]
		v[0], v[1] = v[0]+1, v[1]+bytes
		if i%5 == 0 {
			_, err = db.Exec(`INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?1 + 500, 4242 << 24, 0, 1, ?2, 0, ?3, 2, 1,
				NULL, 0, 0)`, at, (i+1)<<24, bytes)
			check(t, err)
		} else {
			v[2], v[3] = v[2]+1, v[3]+bytes
		}
		sums[stack] = v
	}
	check(t, db.Close())
	return path, sums
}

// pprofTool runs go tool pprof.
func pprofTool(t *testing.T, args ...string) string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		needs(t, "GPUTAP_REQUIRE_PYTHON", "tool go")
	}
	cmd := exec.Command(tool, append([]string{"tool", "pprof"}, args...)...)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// traceLine is a frame with the value of its sample, or without one. Labels have a colon before two spaces.
var traceLine = regexp.MustCompile(`^ *(?:(\d+)B?)?   ([^\s:]+(?: .*)?)$`)

// tracesOf returns the values of go tool pprof -traces by the frames of the program.
func tracesOf(t *testing.T, index, file string) map[string]int64 {
	t.Helper()
	sums := map[string]int64{}
	traces := pprofTool(t, "-traces", "-unit=B", "-sample_index="+index, file)
	for block := range strings.SplitSeq(traces, "-----------+") {
		var value string
		var stack []string
		for line := range strings.Lines(block) {
			m := traceLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if m == nil {
				continue
			}
			if strings.Contains(m[2], "(thread ") {
				break
			}
			value, stack = value+m[1], append(stack, m[2])
		}
		if len(stack) > 0 {
			n, err := strconv.ParseInt(value, 10, 64)
			check(t, err)
			sums[strings.Join(stack, ";")] += n
		}
	}
	return sums
}

// TestGoToolShowsCallStacks compares what go tool pprof prints of an export of Nsight Systems with naive sums.
func TestGoToolShowsCallStacks(t *testing.T) {
	t.Parallel()
	path, want := nsightExport(t, 90)
	file := filepath.Join(t.TempDir(), "memory.pb.gz")
	exported(t, "pprof", path, "-o", file)
	for i, index := range []string{"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"} {
		got := tracesOf(t, index, file)
		for stack, values := range want {
			if got[stack] != values[i] {
				t.Errorf("%s of %s: %d, want %d", index, stack, got[stack], values[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: the stacks are %q", index, slices.Sorted(maps.Keys(got)))
		}
	}
	all := want["cudaMalloc"][3] + want["cudaMalloc;load(Model&);main"][3] + want["cudaMalloc;step(Batch&);main"][3]
	top := pprofTool(t, "-top", "-unit=B", "-sample_index=inuse_space", file)
	for _, text := range []string{fmt.Sprintf("%dB total", all), "load(Model&)",
		fmt.Sprintf("%dB", want["cudaMalloc;step(Batch&);main"][3])} {
		if !strings.Contains(top, text) {
			t.Errorf("-top has no %q: %s", text, top)
		}
	}
	raw := pprofTool(t, "-raw", file)
	for _, text := range []string{"libcudart.so", "train", "[FN]", "call:[cudaMalloc]"} {
		if !strings.Contains(raw, text) {
			t.Errorf("-raw has no %q: %s", text, raw)
		}
	}
}
