package analyze

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/cmd/internal/app"
)

// export is a report of a process that allocates 4096, 8192 and 64 bytes and frees the first, once with another size.
const export = `
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
	globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
	callchainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL,
	unresolved INTEGER, originalIP INTEGER, stackDepth INTEGER NOT NULL);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
	deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL,
	pc INTEGER NOT NULL,
	bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
	correlationId INTEGER, streamId INTEGER);
INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (3, 'cudaFree_v3020'), (4, 'cudaMalloc'), (5, 'main'),
	(6, 'libcudart'), (7, 'app');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');
INSERT INTO CUDA_CALLCHAINS VALUES (1, 4, 6, NULL, 0, 0), (1, 5, 7, NULL, 0, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 1100, 0, 4242 << 24 | 4243, 11, 1, 0, 1),
	(3900, 4100, 0, 4242 << 24 | 4243, 13, 3, 0, NULL);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
	(1000, 4242 << 24, 1, 1, 4096, 0, 4096, 2, 0, NULL, 11, 0),
	(2000, 4242 << 24, 1, 1, 65536, 0, 8192, 2, 0, NULL, 12, 0),
	(3000, 4242 << 24, 1, 1, 131072, 0, 64, 6, 0, 'table', 0, 0),
	(4000, 4242 << 24, 1, 1, 4096, 0, 4000, 2, 1, NULL, 13, 0);
`

// exported writes the export, changed by statements, and returns its path.
func exported(t *testing.T, statements string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.sqlite")
	db, err := sql.Open("sqlite", path)
	check(t, err)
	_, err = db.Exec(export + statements)
	check(t, err)
	check(t, db.Close())
	return path
}

// TestNsightExport analyzes an export. The figures were computed by hand: the peak is 12,352 bytes after 3 µs.
func TestNsightExport(t *testing.T) {
	t.Parallel()
	path := exported(t, "")
	stdout, err := typed(t, "watermark", path, "-o", "json")
	if err != nil && app.ExitCode(err) != 4 {
		t.Fatal(err)
	}
	at := func(us string) string { return "2023-11-14T22:13:20.00000" + us + "000Z" }
	want := []string{"4242 1 12352 " + at("3") + " 0x10000:8192:device:0::" + at("2") +
		" 0x1000:4096:device:4243:cudaMalloc:" + at("1") + " 0x20000:64:managed:0::" + at("3")}
	if got := brief(t, stdout, "peak_bytes", "peak_time"); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, text := range []string{`"stack":["cudaMalloc (libcudart)","main (app)"]`, `"name":"table"`, `"size_mismatches":1`} {
		if !strings.Contains(stdout, text) {
			t.Errorf("%s is not in %s", text, stdout)
		}
	}
	stdout, err = typed(t, "usage", path, "-o", "nsys-tsv")
	if err != nil && app.ExitCode(err) != 4 {
		t.Fatal(err)
	}
	const tsv = "time(ns)\ttotal (B)\tvalid (B)\tinvalid (B)\tdriver (B)\n" +
		"0\t4096\t4096\t0\t0\n1000\t12288\t4096\t8192\t0\n" +
		"2000\t12352\t4096\t8256\t0\n3000\t8256\t0\t8256\t0\n"
	if stdout != tsv {
		t.Errorf("got\n%swant\n%s", stdout, tsv)
	}
}

// TestNsightImpossibleSizes: rows of 2^48 bytes or more are left out, so no sum overflows. The largest possible size
// stays.
func TestNsightImpossibleSizes(t *testing.T) {
	t.Parallel()
	path := exported(t, `
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, globalPid INTEGER, bytes INTEGER,
	copyKind INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (10000, 10001, 4242 << 24, 100, 1),
	(10002, 10003, 4242 << 24, 9223372036854775807, 1);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
	(5000, 4242 << 24, 1, 1, 1 << 20, 0, 9223372036854775807, 2, 0, NULL, 0, 0),
	(5001, 4242 << 24, 1, 1, 2 << 20, 0, 1 << 48, 2, 0, NULL, 0, 0),
	(5002, 4242 << 24, 1, 1, 3 << 20, 0, (1 << 48) - 1, 2, 0, NULL, 0, 0);`)
	stdout, err := typed(t, "watermark", path, "-o", "json")
	peak := fmt.Sprint(`"peak_bytes":`, 8192+64+1<<48-1)
	if app.ExitCode(err) != 4 || !strings.Contains(err.Error(), "3 rows of the export have an impossible size") ||
		!strings.Contains(stdout, `"impossible_sizes":3`) || !strings.Contains(stdout, peak) {
		t.Errorf("status %d, %v, %s", app.ExitCode(err), err, stdout)
	}
	stdout, err = typed(t, "bandwidth", path, "-o", "csv")
	if app.ExitCode(err) != 4 || !strings.Contains(stdout, ",1,100,") {
		t.Errorf("bandwidth: status %d, %v, %s", app.ExitCode(err), err, stdout)
	}
}

// TestEmptyExport: the name says that it is to be an export.
func TestEmptyExport(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.sqlite")
	check(t, os.WriteFile(path, nil, 0o600))
	_, err := typed(t, "watermark", path)
	if app.ExitCode(err) != 1 || !strings.Contains(err.Error(), path+": the file is empty; export the report again") {
		t.Errorf("status %d, %v", app.ExitCode(err), err)
	}
}

// TestReportOfNsightIsNamed: gputap reads the export of a report, and not the report.
func TestReportOfNsightIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"report.nsys-rep", "old.qdrep", "UPPER.NSYS-REP"} {
		path := filepath.Join(t.TempDir(), name)
		check(t, os.WriteFile(path, []byte("NSYS report of Nsight's own form"), 0o600))
		_, err := typed(t, "watermark", path)
		want := "convert it with nsys export --type sqlite " + path
		if app.ExitCode(err) != 1 || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "gputap record") {
			t.Errorf("status %d, %v", app.ExitCode(err), err)
		}
	}
}

// TestDirectoriesAreRefused names the remedy.
func TestDirectoriesAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"runs", "report.sqlite"} {
		path := filepath.Join(t.TempDir(), name)
		check(t, os.Mkdir(path, 0o700))
		_, err := typed(t, "watermark", path)
		if app.ExitCode(err) != 1 || !strings.Contains(err.Error(), path+": it is a directory; name a file in it") {
			t.Errorf("status %d, %v", app.ExitCode(err), err)
		}
	}
}

// TestPipesAreRefused: a command that opened a named pipe would wait for ever, whatever its name ends with.
func TestPipesAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"run.gputap", "report.sqlite"} {
		path := filepath.Join(t.TempDir(), name)
		check(t, unix.Mkfifo(path, 0o600))
		_, err := typed(t, "watermark", path)
		if app.ExitCode(err) != 1 || !strings.Contains(err.Error(), path+": it is not a regular file; write it into") {
			t.Errorf("status %d, %v", app.ExitCode(err), err)
		}
	}
}
