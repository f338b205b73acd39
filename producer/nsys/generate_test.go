package nsys_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

const (
	sessionStart = 1_700_000_000_123_456_789
	hostname     = "node-7"
)

// export is a generated database and the naive counts of what is in it.
type export struct {
	path string
	release

	live, peak   map[use]uint64 // GPU memory by process and device
	hostLive     map[uint32]uint64
	events       uint64
	unmatched    uint64
	reallocs     uint64
	mismatches   uint64
	stacks       map[uint64]string // by time of the event; frames joined, and the name of the variable
	kernels      map[string]int
	copied       map[string]uint64 // bytes by direction
	copies, sets int
}

type use struct{ pid, device uint32 }

// plan is the size and the kind of a generated export.
type plan struct {
	seed     uint64
	events   int
	live     int  // about how many allocations are live
	shuffled bool // rows in no order, instead of several with equal times
}

var memoryKinds = []struct {
	name   string
	onGPU  bool
	onHost bool
}{{"PAGEABLE", false, false}, {"PINNED", false, true}, {"DEVICE", true, false}, {"ARRAY", true, false},
	{"MANAGED", true, false}, {"DEVICE_STATIC", true, false}, {"MANAGED_STATIC", true, false},
	{"UNKNOWN", false, false}}

var copyNames = []string{"UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH", "PTOP"}

var directions = []string{"", "HtoD", "DtoH", "HtoD", "DtoH", "DtoD", "DtoD", "DtoD", "DtoD", "HtoH", "PtoP"}

var (
	calls   = []string{"cudaMalloc_v3020", "cudaFree_v3020", "cuMemAlloc_v2"}
	frames  = []string{"cudaMalloc", "grow(int)", "train::step<float>(void)", "main"}
	modules = []string{"/opt/cuda/libcudart.so.12", "/app/train"}
	kernels = []string{"_Z4axpyPf", "axpy(float*)", "axpy"} // mangled, demangled, short
)

// ids are the texts of an export; the id of the first is 100.
func ids() (texts []string) {
	for _, list := range [][]string{calls, frames, modules, kernels, {"worker"}} {
		texts = append(texts, list...)
	}
	return texts
}

func idOf(text string) int64 {
	for i, s := range ids() {
		if s == text {
			return int64(100 + i)
		}
	}
	panic(text)
}

func global(pid, tid uint32) int64 { return 1<<56 | int64(pid)<<24 | int64(tid) }

// writer is an open export under construction.
type writer struct {
	testing.TB
	tx     *sql.Tx
	insert map[string]*sql.Stmt
}

// row inserts a row: columns "a, b" and their values.
func (w *writer) row(table, columns string, values ...any) {
	w.Helper()
	s := w.insert[table+columns]
	if s == nil {
		var err error
		if s, err = w.tx.Prepare(fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s)", table, columns,
			strings.Repeat(", ?", strings.Count(columns, ",")))); err != nil {
			w.Fatal(err)
		}
		w.insert[table+columns] = s
	}
	if _, err := s.Exec(values...); err != nil {
		w.Fatal(table, columns, err)
	}
}

// generate writes an export and counts what is in it with plain loops.
func generate(tb testing.TB, r release, p plan) *export {
	tb.Helper()
	x := &export{
		path: filepath.Join(tb.TempDir(), "report #1?.sqlite"), release: r, live: map[use]uint64{},
		peak: map[use]uint64{}, hostLive: map[uint32]uint64{}, stacks: map[uint64]string{}, kernels: map[string]int{},
		copied: map[string]uint64{},
	}
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("#", "%23", "?", "%3f").Replace(x.path)+
		"?_pragma=journal_mode(off)&_pragma=synchronous(off)")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(strings.Join(r.tables, "\n")); err != nil {
		tb.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	w := &writer{tb, tx, map[string]*sql.Stmt{}}
	x.writeTarget(w)
	rng := rand.New(rand.NewPCG(p.seed, 1))
	x.writeMemory(w, rng, p)
	x.writeWork(w, rng, p)
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	return x
}

var pids = []uint32{4242, 4243, 70_000}

func (x *export) writeTarget(w *writer) {
	for _, s := range ids() {
		w.row("StringIds", "id, value", idOf(s), s)
	}
	w.row("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", int64(sessionStart))
	w.row("TARGET_INFO_SYSTEM_ENV", "devStateName, name, nameEnum, value", "", "Hostname", 1, hostname)
	for chain := range 4 { // chain n has n + 1 frames
		for depth := range chain + 1 {
			w.row("CUDA_CALLCHAINS", "id, symbol, module, originalIP, stackDepth", chain+1, idOf(frames[depth]),
				idOf(modules[min(depth, 1)]), 0x1000+depth, depth)
		}
	}
	if !x.enums {
		return
	}
	for i, k := range memoryKinds {
		label := strings.ReplaceAll(k.name[:1]+strings.ToLower(k.name[1:]), "_", " ")
		w.row("ENUM_CUDA_MEM_KIND", "id, name, label", x.number(i), "CUDA_MEMOPR_MEMORY_KIND_"+k.name, label)
	}
	for i, op := range []string{"Allocation", "Deallocation"} {
		w.row("ENUM_CUDA_DEV_MEM_EVENT_OPER", "id, name, label", x.number(i),
			"CUDA_DEV_MEM_EVENT_OPR_"+strings.ToUpper(op), op)
	}
	for i, name := range copyNames {
		w.row("ENUM_CUDA_MEMCPY_OPER", "id, name", x.number(i), "CUDA_MEMCPY_KIND_"+name)
	}
	w.row("META_DATA_EXPORT", "name, value", "EXPORT_SCHEMA_VERSION", "3.11.0")
	for i, pid := range pids {
		w.row("PROCESSES", "globalPid, pid, name", global(pid, 0), int64(pid), "/usr/bin/train")
		w.row("ThreadNames", "nameId, globalTid", idOf("worker"), global(pid, pid+1))
		for device := range 2 { // each process sees the two GPUs in another order
			gpu := (device + i) % 2
			w.row("TARGET_INFO_CUDA_DEVICE", "gpuId, cudaId, pid, uuid", gpu, device, int64(pid), cards[gpu][4:])
		}
	}
	for i, uuid := range cards {
		w.row("TARGET_INFO_GPU", "vmId, id, name, busLocation, totalMemory, uuid", 0, i, "NVIDIA H200",
			"0000:1b:00.0", 1<<37, uuid[4:])
	}
}

var cards = []string{"GPU-5d0c1a2b-3c4d-5e6f-7081-92a3b4c5d6e7", "GPU-00000000-1111-2222-3333-444444444444"}

func (x *export) number(i int) int64 { return int64(i) + x.shift }

// block is a live allocation of the generator.
type block struct {
	use
	address uint64
	bytes   uint64
	kind    int
}

// event is a memory event in the order of time.
type event struct {
	block
	at    uint64
	free  bool
	bytes uint64
	name  any
	chain int // 0: none
	call  string

	number int64 // from 1
}

func (x *export) writeMemory(w *writer, rng *rand.Rand, p plan) {
	var order []event
	var held []block
	known := map[[2]uint64]int{} // where in held; by pid and address
	next, at := uint64(1), uint64(0)
	flush := func() {
		if p.shuffled {
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		for _, e := range order {
			x.writeEvent(w, &e)
		}
		order = order[:0]
	}
	for range p.events {
		if at += uint64(rng.IntN(200_000)); p.shuffled || at == 0 {
			at++
		} else if rng.IntN(10) == 0 && len(order) > 0 {
			at = order[len(order)-1].at
		}
		e := event{at: at}
		switch n := rng.IntN(1000); {
		case n == 0: // the allocation of this address was not seen
			e.block = block{use: use{pids[rng.IntN(len(pids))], 0}, address: 0x10000 + next<<9, kind: 2}
			e.free, e.bytes = true, 4096
			next++
		case n < 3 && len(held) > 0: // an allocation over a live one
			e.block = held[rng.IntN(len(held))]
			e.bytes = 4096 * uint64(1+rng.IntN(100))
		case len(held) > 0 && rng.IntN(2*p.live) < len(held):
			e.block, e.free = held[rng.IntN(len(held))], true
			if e.bytes = e.block.bytes; n == 5 {
				e.bytes++
			}
		default:
			e.block = block{
				use: use{pids[rng.IntN(len(pids))], uint32(rng.IntN(2))}, address: 0x7f00_0000_0000 + next<<9,
				kind: rng.IntN(len(memoryKinds)),
			}
			e.bytes = uint64(512 * (1 + rng.IntN(1000)))
			next++
		}
		x.choose(&e, rng)
		x.count(&e, &held, known)
		order = append(order, e)
		if len(order) == 100_000 && !p.shuffled {
			flush()
		}
	}
	flush()
}

// choose draws what is known of the call of an event.
func (x *export) choose(e *event, rng *rand.Rand) {
	switch rng.IntN(4) {
	case 0:
		e.call, e.chain = calls[rng.IntN(len(calls))], 1+rng.IntN(4)
	case 1:
		e.call = calls[rng.IntN(len(calls))]
	}
	if strings.HasSuffix(memoryKinds[e.kind].name, "STATIC") && !e.free {
		e.name = "table"
	}
}

// count is the naive count of an event.
func (x *export) count(e *event, held *[]block, known map[[2]uint64]int) {
	x.events++
	e.number = int64(x.events)
	key := [2]uint64{uint64(e.pid), e.address}
	at, live := known[key]
	if live {
		old := (*held)[at]
		x.change(&old, -int64(old.bytes))
		last := (*held)[len(*held)-1]
		(*held)[at] = last
		known[[2]uint64{uint64(last.pid), last.address}] = at
		*held = (*held)[:len(*held)-1]
		delete(known, key)
		switch {
		case !e.free:
			x.reallocs++
		case e.bytes != old.bytes:
			x.mismatches++
		}
	} else if e.free {
		x.unmatched++
	}
	if !e.free {
		e.block.bytes = e.bytes
		known[key] = len(*held)
		*held = append(*held, e.block)
		x.change(&e.block, int64(e.bytes))
	}
	if len(x.stacks) < 100_000 && (e.chain > 0 || e.name != nil) {
		var list []string
		for i := range e.chain {
			list = append(list, frames[i]+" ("+filepath.Base(modules[min(i, 1)])+")")
		}
		name, _ := e.name.(string)
		x.stacks[e.at] += strings.Join(list, " < ") + "|" + name + ";"
	}
}

func (x *export) change(b *block, by int64) {
	switch k := memoryKinds[b.kind]; {
	case k.onGPU:
		x.live[b.use] += uint64(by)
		x.peak[b.use] = max(x.peak[b.use], x.live[b.use])
	case k.onHost:
		x.hostLive[b.pid] += uint64(by)
	}
}

// writeEvent writes a memory event with its call.
func (x *export) writeEvent(w *writer, e *event) {
	op, correlation := 0, int64(0)
	if e.free {
		op = 1
	}
	if e.call != "" {
		correlation = e.number
		thread := global(e.pid, e.pid+1)
		const columns = "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId"
		// a call of the runtime and the one of the driver inside of it; the event may begin after both
		w.row("CUPTI_ACTIVITY_KIND_RUNTIME", columns, int64(e.at)-900, int64(e.at)-10, 0, thread, correlation,
			idOf(e.call), 0, nil)
		var chain any
		if e.chain > 0 {
			chain = e.chain
			w.row("CUPTI_ACTIVITY_KIND_RUNTIME", columns, int64(e.at)-800, int64(e.at)-20, 67, thread, correlation,
				idOf(e.call), 0, chain)
		}
		// another process uses the same number
		w.row("CUPTI_ACTIVITY_KIND_RUNTIME", columns, int64(e.at)-950, int64(e.at), 1, global(e.pid+7, 1), correlation,
			idOf("cuMemAlloc_v2"), 0, 4)
	}
	columns := "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, name, " +
		"correlationId"
	values := []any{
		int64(e.at), global(e.pid, 0), int64(e.device), 1, int64(e.address), 0, int64(e.bytes), x.number(e.kind),
		x.number(op), e.name, correlation,
	}
	if x.enums && e.address>>9%3 == 0 {
		columns += ", localMemoryPoolAddress"
		values = append(values, 0x5500)
	}
	w.row("CUDA_GPU_MEMORY_USAGE_EVENTS", columns, values...)
}

// writeWork writes kernels, copies and sets.
func (x *export) writeWork(w *writer, rng *rand.Rand, p plan) {
	for i := range p.events / 4 {
		at, pid := int64(rng.IntN(p.events*100_000)+1), pids[rng.IntN(len(pids))]
		columns, name := "start, end, deviceId, contextId, streamId, globalPid, demangledName, shortName, "+
			"registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, dynamicSharedMemory", kernels[1]
		values := []any{at, at + 500, i % 2, 1, 7, global(pid, 0), idOf(kernels[1]), idOf(kernels[2]), 32,
			1 + i%3, 1, 1, 256, 1, 1, 0}
		if x.enums && i%2 == 0 {
			columns += ", mangledName"
			values = append(values, idOf(kernels[0]))
			name = kernels[0]
		}
		w.row("CUPTI_ACTIVITY_KIND_KERNEL", columns, values...)
		x.kernels[name]++
		bytes, kind := int64(rng.IntN(1<<20)), rng.IntN(len(copyNames))
		w.row("CUPTI_ACTIVITY_KIND_MEMCPY",
			"start, end, deviceId, contextId, streamId, globalPid, bytes, copyKind, srcKind, dstKind",
			at+1, at+1000, i%2, 1, 7, global(pid, 0), bytes, x.number(kind), x.number(0), x.number(2))
		x.copied[directions[kind]] += uint64(bytes)
		x.copies++
		if i%5 == 0 {
			w.row("CUPTI_ACTIVITY_KIND_MEMSET", "start, end, deviceId, contextId, streamId, globalPid, value, bytes",
				at+2, at+40, i%2, 1, 7, global(pid, 0), 0, bytes)
			x.sets++
		}
	}
}
