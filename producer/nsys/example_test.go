package nsys_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/producer/nsys"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// small is an export of a process that allocates three times and frees once.
const small = `
INSERT INTO StringIds VALUES (1, 'cudaMalloc_v3020'), (2, 'cuMemAlloc_v2'), (3, 'cudaFree_v3020'), (4, 'cudaMalloc'),
	(5, 'main'), (6, 'libcudart'), (7, 'app'), (8, '_Z4axpyPf');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '');
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 1, 'node-7');
INSERT INTO CUDA_CALLCHAINS VALUES (1, 4, 6, NULL, 0, 0), (1, 5, 7, NULL, 0, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 1100, 0, 4242 << 24 | 4243, 11, 1, 0, 1),
	(1900, 2100, 1, 4242 << 24 | 4243, 12, 2, 0, NULL), (3900, 4100, 0, 4242 << 24 | 4243, 13, 3, 0, NULL);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
	memoryOperationType, name, correlationId) VALUES
	(1000, 4242 << 24, 0, 1, 0x7f0000000000, 0, 4096, 2, 0, NULL, 11),
	(2000, 4242 << 24, 0, 1, 0x7f0000001000, 0, 8192, 2, 0, NULL, 12),
	(3000, 4242 << 24, 0, 1, 0x7f0000004000, 0, 64, 6, 0, 'table', 0),
	(4000, 4242 << 24, 0, 1, 0x7f0000000000, 0, 4096, 2, 1, NULL, 13);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (3200, 3300, 0, 1, 7, 14, 4242 << 24, 8, 8, 32, 1, 1, 1, 256, 1, 1, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (3400, 3500, 0, 1, 7, 15, 4242 << 24, 4096, 2, 0, 2);`

// TestPageShowsTheExample: docs/nsight.md shows the output of the example.
func TestPageShowsTheExample(t *testing.T) {
	_, output, found := strings.Cut(string(read(t, "example_test.go")), "\t// "+"Output:\n")
	output, _, _ = strings.Cut(output, "}\n")
	output = strings.ReplaceAll(output, "\t// ", "")
	if !found || !strings.Contains(string(read(t, "../../docs/nsight.md")), output) {
		t.Errorf("docs/nsight.md does not show\n%s", output)
	}
}

// The export of docs/nsight.md, whose form is that of nsys 2022.1.
func ExampleConvert() {
	dir, err := os.MkdirTemp("", "nsys")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	export, path := filepath.Join(dir, "report.sqlite"), filepath.Join(dir, "report.gtr")
	db, err := sql.Open("sqlite", export)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(always + events("", "", "", "") + small); err != nil {
		log.Fatal(err)
	}
	db.Close()

	file, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	w, err := recording.NewWriter(file)
	if err != nil {
		log.Fatal(err)
	}
	s, err := nsys.Convert(context.Background(), export, w, nsys.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("host %s, session %s: %d memory events, %d launch, %d copy\n", s.Host, s.Session.Format(time.RFC3339),
		s.Events[schema.KindMemory], s.Events[schema.KindLaunch], s.Events[schema.KindCopy])
	fmt.Printf("%d with a call stack, %d with the name of the call, %d with neither\n", s.WithStack, s.WithCall,
		s.WithoutCall)
	for _, m := range s.Missing {
		if m.Name == "PROCESSES" || m.Name == "ThreadNames" {
			fmt.Printf("missing %s: %s\n", m.Name, m.Effect)
		}
	}
	printMemory(path)
	// Output:
	// host node-7, session 2023-11-14T22:13:20Z: 4 memory events, 1 launch, 1 copy
	// 1 with a call stack, 2 with the name of the call, 1 with neither
	// missing PROCESSES: processes have no names
	// missing ThreadNames: threads have no names
	// 2023-11-14T22:13:20.000001Z 4242 alloc cudaMalloc device 0x7f0000000000 4096 [cudaMalloc (libcudart) main (app)]
	// 2023-11-14T22:13:20.000002Z 4242 alloc cuMemAlloc_v2 device 0x7f0000001000 8192 []
	// 2023-11-14T22:13:20.000003Z 4242 alloc  managed 0x7f0000004000 64 [] table
	// 2023-11-14T22:13:20.000004Z 4242 free cudaFree device 0x7f0000000000 4096 []
}

// printMemory prints the memory events of a recording.
func printMemory(path string) {
	r, err := recording.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	d, b := schema.NewDecoder(), schema.Batch{}
	memory := recording.Selection{Kinds: []schema.Kind{schema.KindMemory}}
	for m, err := range r.Messages(recording.Filter{Selection: memory}) {
		if err == nil {
			err = d.Decode(m.Data, &b)
		}
		if err != nil {
			log.Fatal(err)
		}
		for i := range b.Events {
			e := b.Memory(i)
			call, stack := b.Calls[e.Call], schema.Stack{}
			if e.Stack > 0 {
				stack = b.Stacks[e.Stack-1]
			}
			line := fmt.Sprintln(b.Wall(e.Time).Format(time.RFC3339Nano), b.Processes[b.Threads[e.Thread].Process].PID,
				call.Op, call.Symbol, call.Class, fmt.Sprintf("%#x", e.Ptr), e.Bytes, stack.Frames, stack.Name)
			fmt.Println(strings.TrimSpace(line))
		}
	}
}
