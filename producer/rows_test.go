//go:build bpf

package producer

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// stubCards are the UUIDs of the stub's devices by ordinal, as long as a process sees all.
var stubCards = []string{"GPU-a0b1c2d3-0001-4217-8a5e-6f708192a3b4", "GPU-1f2e3d4c-1112-475b-9dc6-b7a8998a7b6c"}

// truthLine is one call as the program itself printed it: see producer/testdata/workload_rows.h.
type truthLine struct {
	symbol string
	values map[string]string
}

func (l truthLine) text(key string) string { return l.values[key] }

func (l truthLine) has(key string) bool { _, ok := l.values[key]; return ok }

func (l truthLine) failed() bool { return l.text("variant") == "fail" }

// number parses a value of the line; 0 when it is missing.
func (l truthLine) number(key string) uint64 {
	if !l.has(key) {
		return 0
	}
	return parseNumber(l.text(key))
}

// numbers parses a list with commas.
func (l truthLine) numbers(key string) (all []uint64) {
	for _, s := range strings.Split(l.text(key), ",") {
		all = append(all, parseNumber(s))
	}
	return all
}

func parseNumber(s string) uint64 {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		panic(fmt.Sprintf("the workload printed %q for a number", s))
	}
	return n
}

func parseTruth(text string) (l truthLine) {
	fields := strings.Fields(text)
	l = truthLine{fields[0], map[string]string{}}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		l.values[key] = value
	}
	return l
}

// attended runs a scenario of the workload under a producer of all features, which ends while the program still waits
// at its last step. It returns the published batches and the lines that the program printed.
func attended(t *testing.T, args ...string) (messages [][]byte, printed []string) {
	return attendedBy(t, []string{"memory", "launch", "copy", "sync"}, nil, args...)
}

// waiting is attended by a producer of some features. It calls started when the process has started.
func waiting(t *testing.T, features []string, started func(pid uint32), args ...string) [][]byte {
	messages, _ := attendedBy(t, features, started, args...)
	return messages
}

func attendedBy(t *testing.T, features []string, started func(pid uint32), args ...string) (messages [][]byte,
	printed []string) {
	producertest.RequireBPF(t)
	js := newBus(t)
	cfg := config.DefaultProducer()
	cfg.Host, cfg.Features, cfg.Libraries = "test", features, []string{producertest.Built(t, "stub/libcuda.so.1")}
	p, err := New(cfg, "test", js, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()

	workload := exec.Command(producertest.Built(t, "workload"), append(args, "--steps")...)
	stdin, err1 := workload.StdinPipe()
	stdout, err2 := workload.StdoutPipe()
	var stderr strings.Builder
	workload.Stderr = &stderr
	if err1 != nil || err2 != nil || workload.Start() != nil {
		t.Fatal("the workload does not start")
	}
	if started != nil {
		started(uint32(workload.Process.Pid))
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "step ") {
		printed = append(printed, lines.Text())
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	stdin.Close()
	if err := workload.Wait(); err != nil {
		t.Fatalf("workload %v: %v: %s", args, err, stderr.String())
	}
	return stored(t, js), printed
}

// seen is one event of any kind with its columns in words, and with the graph that it launched.
type seen struct {
	tid, time, duration uint64
	symbol              string
	columns             map[string]string
	partial             bool
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func dims(d [3]uint32) string { return fmt.Sprintf("%d,%d,%d", d[0], d[1], d[2]) }

// journal is the content of the batches by thread, in order, with the coverage of the last host batch.
type journal struct {
	threads  map[uint64][]seen
	coverage map[uint32]schema.Coverage // by PID
	symbols  map[string]bool
}

func collect(t *testing.T, messages [][]byte) journal {
	all := journal{map[uint64][]seen{}, map[uint32]schema.Coverage{}, map[string]bool{}}
	var b schema.Batch
	decoder := schema.NewDecoder()
	for _, data := range messages {
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		for _, c := range b.Coverage {
			all.coverage[b.Processes[c.Process].PID] = schema.Coverage{
				Asked: c.Asked, Outside: slices.Clone(c.Outside), ExportTables: c.ExportTables,
			}
		}
		for i := range b.Events {
			e := seenIn(&b, i)
			all.threads[e.tid] = append(all.threads[e.tid], e)
			all.symbols[e.symbol] = true
		}
	}
	if b.TotalLost() != 0 {
		t.Errorf("losses: %v", b.Lost)
	}
	return all
}

func seenIn(b *schema.Batch, i int) (e seen) {
	switch b.Kind {
	case schema.KindMemory:
		return memorySeen(b, b.Memory(i))
	case schema.KindLaunch:
		return launchSeen(b, b.Launch(i))
	case schema.KindCopy:
		return copySeen(b, b.Copy(i))
	}
	return syncSeen(b, b.Sync(i))
}

func newSeen(b *schema.Batch, time schema.KTime, duration uint64, thread, call, gpu uint32) seen {
	c, th := b.Calls[call], b.Threads[thread]
	e := seen{tid: uint64(th.TID), time: uint64(time), duration: duration, symbol: c.Symbol, columns: map[string]string{
		"kind": b.Kind.String(), "op": c.Op.String(), "class": c.Class.String(), "direction": c.Direction.String(),
		"pid": decimal(uint64(b.Processes[th.Process].PID)), "comm": th.Comm, "gpu": "none", "uuid": "",
	}}
	if gpu != 0 {
		g := b.GPUs[gpu-1]
		e.columns["gpu"], e.columns["uuid"] = decimal(uint64(g.Ordinal)), g.UUID
		e.columns["inferred"], e.columns["size"] = strconv.FormatBool(g.Inferred), decimal(g.Bytes)
	}
	return e
}

func memorySeen(b *schema.Batch, m schema.Memory) seen {
	e := newSeen(b, m.Time, m.Duration, m.Thread, m.Call, m.GPU)
	for field, value := range reflect.ValueOf(m).Fields() { // result, ptr, bytes, aux, pool, …
		if column := strings.ToLower(field.Name); e.columns[column] == "" {
			e.columns[column] = decimal(value.Uint())
		}
	}
	e.columns["context"], e.columns["context's gpu"] = "none", "none"
	if m.Context != 0 {
		c := b.Contexts[m.Context-1]
		e.columns["context"] = decimal(c.Handle)
		if c.GPU != 0 {
			e.columns["context's gpu"] = decimal(uint64(b.GPUs[c.GPU-1].Ordinal))
		}
	}
	return e
}

func launchSeen(b *schema.Batch, l schema.Launch) seen {
	s := b.Shapes[l.Shape]
	e := newSeen(b, l.Time, 0, l.Thread, s.Call, l.GPU)
	f := b.Funcs[s.Func]
	e.columns["func"], e.columns["name"], e.columns["read"] = decimal(f.Handle), f.Name, strconv.FormatBool(f.Read)
	e.columns["grid"], e.columns["block"], e.columns["shared"] = dims(s.Grid), dims(s.Block),
		decimal(uint64(s.SharedBytes))
	e.columns["stream"] = decimal(b.CUDAStreams[l.CUDAStream])
	var nodes []string
	for _, g := range b.Graphs {
		if g.Func != s.Func {
			continue
		}
		e.partial = g.Partial
		for _, n := range g.Nodes {
			nodes = append(nodes, fmt.Sprintf("%d %s %#x", n.Count, b.Funcs[n.Func].Name, b.Funcs[n.Func].Handle))
		}
	}
	e.columns["nodes"] = strings.Join(nodes, ", ")
	return e
}

func copySeen(b *schema.Batch, c schema.Copy) seen {
	e := newSeen(b, c.Time, c.Duration, c.Thread, c.Call, c.GPU)
	e.columns["result"], e.columns["bytes"], e.columns["stream"] = decimal(uint64(c.Result)), decimal(c.Bytes),
		decimal(b.CUDAStreams[c.CUDAStream])
	e.columns["dst"], e.columns["src"] = decimal(c.Dst), decimal(c.Src)
	return e
}

func syncSeen(b *schema.Batch, s schema.Sync) seen {
	e := newSeen(b, s.Time, s.Duration, s.Thread, s.Call, s.GPU)
	e.columns["result"], e.columns["stream"] = decimal(uint64(s.Result)), decimal(b.CUDAStreams[s.CUDAStream])
	e.columns["event"], e.columns["until"], e.columns["elapsed"] = decimal(s.CUDAEvent), decimal(s.Until),
		decimal(s.Elapsed)
	return e
}

// between is the thread's events of a symbol inside two looks at the clock.
func (a *journal) between(l truthLine, symbol, from, until string) (found []seen) {
	for _, e := range a.threads[l.number("tid")] {
		if e.symbol == symbol && e.time >= l.number(from) && e.time+e.duration <= l.number(until) {
			found = append(found, e)
		}
	}
	return found
}

// compare reports the columns of an event that differ from those that the caller expects.
func compare(t *testing.T, l truthLine, e seen, want map[string]string) {
	t.Helper()
	for _, column := range slices.Sorted(maps.Keys(want)) {
		if want[column] != "any" && e.columns[column] != want[column] {
			t.Errorf("%s %s: %s is %q, want %q", e.symbol, l.text("variant"), column, e.columns[column], want[column])
		}
	}
}

// TestRows calls every function of the table once through a real uprobe, with distinct arguments, and compares every
// column with the arguments and results of the caller. It calls functions with a visible result once more so that they
// fail.
func TestRows(t *testing.T) {
	messages, printed := attended(t, "rows")
	all := collect(t, messages)
	lines := map[string][]truthLine{}
	for _, line := range printed {
		l := parseTruth(line)
		lines[l.symbol] = append(lines[l.symbol], l)
	}
	for i := range schema.Calls {
		c := &schema.Calls[i]
		if c.Shape == schema.ShapeNone || c.Library != schema.DriverLibrary {
			continue // a process event, or a call of another library
		}
		t.Run(c.Symbol, func(t *testing.T) {
			if len(lines[c.Symbol]) == 0 {
				t.Fatal("the workload has no row")
			}
			if c.Kind == schema.KindNone && all.symbols[c.Symbol] {
				t.Error("travels")
			}
			for _, l := range lines[c.Symbol] {
				checkRow(t, &all, l)
			}
		})
	}
	for symbol := range lines {
		if !slices.ContainsFunc(schema.Calls, func(c schema.Call) bool { return c.Symbol == symbol }) {
			t.Errorf("the workload has a row for %s, which the table lacks", symbol)
		}
	}
}

func checkRow(t *testing.T, all *journal, l truthLine) {
	if l.text("kind") != "" {
		checkOwn(t, all, l)
	}
	checkEffects(t, all, l)
}

// checkOwn compares the event of the call itself.
func checkOwn(t *testing.T, all *journal, l truthLine) {
	found := all.between(l, l.symbol, "from", "until")
	want := []map[string]string{expected(l, "")}
	if l.has("launches") {
		want = append(want, expected(l, "2"))
	}
	if len(found) != len(want) {
		t.Errorf("%s: %d events inside the call, want %d; the thread has %d in all",
			l.text("variant"), len(found), len(want), len(all.threads[l.number("tid")]))
		return
	}
	for i, e := range found {
		if e.columns["kind"] != "launch" && e.duration == 0 {
			t.Errorf("%s: no duration", l.text("variant"))
		}
		compare(t, l, e, want[i])
	}
}

// checkEffects checks the effects of a call on later events.
func checkEffects(t *testing.T, all *journal, l truthLine) {
	t.Helper()
	if l.has("launch_from") {
		one(t, all, l, "cuLaunchKernel", "launch", map[string]string{
			"op": "launch", "func": decimal(l.number("func")), "name": l.text("name"), "read": "false",
		})
	}
	if l.has("alloc_from") {
		ordinal := l.number("later_gpu")
		one(t, all, l, "cuMemAlloc_v2", "alloc", map[string]string{
			"context": decimal(l.number("later_context")), "context's gpu": decimal(ordinal), "gpu": decimal(ordinal),
			"uuid": stubCards[ordinal],
		})
	}
	if l.has("records") {
		checkRecorded(t, all, l)
	}
	if l.has("graph_from") {
		one(t, all, l, "cuGraphLaunch", "graph", map[string]string{
			"op": "graph_launch", "func": decimal(l.number("exec")), "nodes": nodesOf(l),
			"stream": decimal(l.number("graph_stream")),
		})
	}
	if l.has("graph_alloc") || l.has("graph_free") {
		checkGraphMemory(t, all, l)
	}
	if l.text("op") == "coverage" {
		checkCoverage(t, all, l)
	}
}

func one(t *testing.T, all *journal, l truthLine, symbol, key string, want map[string]string) {
	t.Helper()
	found := slices.DeleteFunc(all.between(l, symbol, key+"_from", key+"_until"), func(e seen) bool {
		return e.columns["class"] == "graph"
	})
	if len(found) != 1 {
		t.Errorf("%s: %d events of %s after the call, want 1", l.text("variant"), len(found), symbol)
		return
	}
	compare(t, l, found[0], want)
}

func nodesOf(l truthLine) string {
	if l.number("count") == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s %#x", l.number("count"), l.text("node"), l.number("node_func"))
}

// checkRecorded counts the launches that went into a graph: each is published as recorded, and none as executed.
func checkRecorded(t *testing.T, all *journal, l truthLine) {
	t.Helper()
	recorded := uint64(0)
	for _, e := range all.threads[l.number("tid")] {
		if e.symbol != "cuLaunchKernel" {
			continue
		}
		if e.columns["op"] != "record" || e.columns["name"] != l.text("node") {
			t.Errorf("%s: a launch of %q inside the capture has op %s", l.text("variant"), e.columns["name"],
				e.columns["op"])
		}
		recorded++
	}
	if recorded != l.number("records") {
		t.Errorf("%s: %d launches recorded, want %d", l.text("variant"), recorded, l.number("records"))
	}
}

// checkGraphMemory: the launch of a graph brings the memory of its allocation nodes, and takes that of its free nodes.
func checkGraphMemory(t *testing.T, all *journal, l truthLine) {
	t.Helper()
	var want []map[string]string
	if l.has("graph_alloc") {
		want = append(want, map[string]string{
			"op": "alloc", "ptr": decimal(l.number("graph_alloc")), "bytes": decimal(l.number("graph_bytes")),
		})
	}
	if l.has("graph_free") {
		want = append(want, map[string]string{"op": "free", "ptr": decimal(l.number("graph_free"))})
	}
	var found []seen
	for _, e := range all.between(l, "cuGraphLaunch", "graph_from", "graph_until") {
		if e.columns["class"] == "graph" {
			found = append(found, e)
		}
	}
	if len(found) != len(want) {
		t.Errorf("%s: the launch of the graph brought %d events of class graph, want %d", l.text("variant"), len(found),
			len(want))
		return
	}
	for i, e := range found {
		want[i]["kind"], want[i]["gpu"] = "memory", l.text("device")
		compare(t, l, e, want[i])
	}
}

// checkCoverage: the host batch has the totals of the process, whose rows ask twice for a function and once for a
// table.
func checkCoverage(t *testing.T, all *journal, l truthLine) {
	t.Helper()
	c, ok := all.coverage[uint32(l.number("pid"))]
	if !ok {
		t.Fatal("no host batch tells what the process asked the driver for")
	}
	outside := func(name string) bool { return strings.HasPrefix(name, l.text("asked")) } // and its version
	if l.has("asked") && (c.Asked != 2 || !slices.ContainsFunc(c.Outside, outside)) {
		t.Errorf("%d asked for, outside %v, want 2 and %s", c.Asked, c.Outside, l.text("asked"))
	}
	if l.has("export_tables") && c.ExportTables != 1 {
		t.Errorf("%d export tables, want 1", c.ExportTables)
	}
}

// expected is what each column should hold. entry is "2" for the second launch of one call.
func expected(l truthLine, entry string) map[string]string {
	want := map[string]string{
		"kind": l.text("kind"), "op": l.text("op"), "class": l.text("class"), "direction": l.text("direction"),
		"pid": l.text("pid"), "comm": strings.Replace(l.text("comm"), "_", " ", 1),
	}
	if l.text("kind") != "launch" {
		want["result"] = decimal(l.number("result"))
	}
	if !l.failed() {
		want["gpu"], want["uuid"] = gpuOf(l)
	}
	switch l.text("kind") {
	case "memory":
		memoryExpected(l, want)
	case "launch":
		launchExpected(l, entry, want)
	case "copy":
		copyExpected(l, want)
	case "sync":
		syncExpected(l, want)
	}
	return want
}

// gpuOf: memory of the host is on no GPU; a call that names a device is that device's; all others are their context's.
func gpuOf(l truthLine) (gpu, uuid string) {
	gpu = l.text("device")
	if l.has("gpu") {
		gpu = l.text("gpu")
	}
	if class := l.text("class"); class == "pinned" || class == "registered" || gpu == "none" {
		return "none", ""
	}
	return gpu, stubCards[parseNumber(gpu)]
}

// memoryExpected: the event of a failed call has the arguments and no results.
func memoryExpected(l truthLine, want map[string]string) {
	want["ptr"] = decimal(l.number("ptr"))
	if l.failed() {
		if l.text("op") == "map_array" {
			delete(want, "ptr") // inside a struct
		}
		if l.has("bytes") {
			want["bytes"] = decimal(l.number("bytes"))
		}
		return
	}
	want["bytes"], want["aux"], want["pool"] = decimal(bytesOf(l)), decimal(auxOf(l)), decimal(l.number("pool"))
	if l.text("in_context") != "any" {
		want["context"], want["context's gpu"] = decimal(l.number("context")), l.text("device")
	}
}

func bytesOf(l truthLine) uint64 {
	switch {
	case l.has("pitch"):
		return l.number("pitch") * l.number("height")
	case l.has("format"):
		return descriptorBytes(l)
	case l.has("total"): // used by all processes
		return l.number("total") - l.number("free")
	case l.has("value"): // of a pool's attribute
		return l.number("value")
	case l.has("size"): // in a struct
		return l.number("size")
	}
	return l.number("bytes")
}

// descriptorBytes adds the levels of an array, each half as wide, high and deep as the one above; layers are not
// halved.
func descriptorBytes(l truthLine) (sum uint64) {
	const layered, sparse, deferred = 0x01, 0x40, 0x80
	flags := l.number("flags")
	if flags&(sparse|deferred) != 0 {
		return 0 // memory comes later, from elsewhere
	}
	element := map[uint64]uint64{0x01: 1, 0x02: 2, 0x03: 4, 0x08: 1, 0x09: 2, 0x0a: 4, 0x10: 2,
		0x20: 4}[l.number("format")]
	width, height, depth := l.number("width"), l.number("height"), l.number("depth")
	for range l.number("levels") {
		sum += max(width, 1) * max(height, 1) * max(depth, 1) * l.number("channels") * element
		width, height = width/2, height/2
		if flags&layered == 0 {
			depth /= 2
		}
	}
	return sum
}

func auxOf(l truthLine) uint64 {
	switch {
	case l.has("aux"):
		return l.number("aux")
	case l.has("token"):
		return tokenHash(l.numbers("token"))
	case l.has("fd"):
		return l.number("fd")
	case l.has("max"): // of a pool
		return l.number("max")
	case l.has("total"):
		return l.number("total")
	}
	return l.number("stream")
}

// tokenHash hashes the 64 bytes of a token, so that a test can compare the tokens of two processes.
func tokenHash(words []uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, w := range words {
		h = (h ^ w) * 1099511628211
	}
	return h
}

func launchExpected(l truthLine, entry string, want map[string]string) {
	want["func"], want["name"] = decimal(l.number("func")), l.text("name")
	want["grid"], want["block"] = l.text("grid"+entry), l.text("block"+entry)
	want["shared"], want["stream"] = decimal(l.number("shared"+entry)), decimal(l.number("stream"+entry))
	if want["name"] != "" {
		want["read"] = strconv.FormatBool(l.text("read") == "true")
	}
	if l.number("count") != 0 {
		want["nodes"] = nodesOf(l)
	}
}

func copyExpected(l truthLine, want map[string]string) {
	want["stream"], want["dst"], want["src"] = decimal(l.number("stream")), decimal(l.number("dst")),
		decimal(l.number("src"))
	switch {
	case l.has("elements"):
		want["bytes"] = decimal(l.number("elements") * l.number("unit"))
	case l.has("sizes"):
		sum := uint64(0)
		for _, n := range l.numbers("sizes") {
			sum += n
		}
		want["bytes"] = decimal(sum)
	case l.has("src_type"):
		want["bytes"] = decimal(l.number("width") * l.number("height") * l.number("depth"))
		want["dst"], want["src"] = side(l, "dst"), side(l, "src")
		if !l.has("direction") {
			want["direction"] = directionOf(l.number("src_type"), l.number("dst_type"))
		}
	default:
		want["bytes"] = decimal(l.number("bytes"))
	}
	if l.failed() && (l.has("sizes") || l.has("src_type")) {
		delete(want, "bytes") // inside structs, which a refused call need not have read
		delete(want, "dst")
		delete(want, "src")
		delete(want, "direction")
	}
}

// Memory types of CUDA's copy structs.
const (
	typeHost = iota + 1
	typeDevice
	typeArray
	typeUnified
)

func side(l truthLine, which string) string {
	field := map[uint64]string{typeHost: "_host", typeDevice: "_device", typeArray: "_array", typeUnified: "_device"}
	return decimal(l.number(which + field[l.number(which+"_type")]))
}

func directionOf(src, dst uint64) string {
	switch {
	case src == typeUnified || dst == typeUnified:
		return "default"
	case src == typeHost && dst == typeHost:
		return "HtoH"
	case src == typeHost:
		return "HtoD"
	case dst == typeHost:
		return "DtoH"
	}
	return "DtoD"
}

func syncExpected(l truthLine, want map[string]string) {
	want["stream"] = decimal(l.number("stream"))
	if want["event"] = l.text("event"); want["event"] != "any" {
		want["event"] = decimal(l.number("event"))
	}
	if l.failed() {
		delete(want, "stream") // cuStreamCreate made none
		if l.text("op") != "stream_create" {
			want["stream"] = decimal(l.number("stream"))
		}
		return
	}
	want["until"], want["elapsed"] = decimal(l.number("until_event")), "0"
	if l.has("ms_bits") {
		ms := math.Float32frombits(uint32(l.number("ms_bits")))
		want["elapsed"] = decimal(uint64(float64(ms) * 1e6))
	}
}

// TestRowsOfDevices: each of these rows is alone in telling something of a device.
func TestRowsOfDevices(t *testing.T) {
	for i := range schema.Calls {
		c := &schema.Calls[i]
		if c.Op != schema.OpDevice {
			continue
		}
		t.Run(c.Symbol, func(t *testing.T) {
			messages, printed := attended(t, "row", c.Symbol)
			all := collect(t, messages)
			if len(printed) != 1 {
				t.Fatalf("the workload printed %v", printed)
			}
			l := parseTruth(printed[0])
			want := map[string]string{"context": decimal(l.number("later_context")), "gpu": l.text("later_gpu")}
			if c.Shape == schema.ShapeUUID {
				want["uuid"], want["inferred"] = l.text("uuid"), "false"
			}
			if c.Shape == schema.ShapeDeviceBytes {
				want["size"] = l.text("size")
			}
			one(t, &all, l, "cuMemAlloc_v2", "alloc", want)
		})
	}
}

// TestTwoDevices: two processes that call different stubCards their ordinal 0 are on two GPUs.
func TestTwoDevices(t *testing.T) {
	messages, printed := attended(t, "two-devices")
	all := collect(t, messages)
	uuids := map[string]bool{}
	for _, line := range printed {
		l := parseTruth("visible " + line)
		uuids[l.text("uuid")] = true
		var found []seen
		for _, e := range all.threads[l.number("pid")] {
			if e.symbol == "cuMemAlloc_v2" && e.columns["pid"] == l.text("pid") {
				found = append(found, e)
			}
		}
		if len(found) != 1 {
			t.Errorf("process %s: %d allocations, want 1", l.text("pid"), len(found))
			continue
		}
		compare(t, l, found[0], map[string]string{
			"gpu": "0", "uuid": l.text("uuid"), "ptr": decimal(l.number("ptr")), "bytes": l.text("bytes"),
		})
	}
	if len(printed) != 2 || len(uuids) != 2 {
		t.Errorf("the workload had %v, want two processes on two stubCards", printed)
	}
}
