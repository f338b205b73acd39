package nsys

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gputap/gputap/schema"
)

// Columns of the query of memory events. The call of an event is the one with its correlation id in its process.
const (
	memStart = iota
	memProcess
	memAddress
	memBytes
	memKind
	memOp
	memDevice
	memContext
	memName
	memStream
	memPool
	memThread
	memCall
	memChain
	numMemColumns
)

// memory adds memory events.
type memory struct {
	*converter
	kinds, ops enum
}

func openMemory(ctx context.Context, c *converter) (f *feed, err error) {
	err = c.need(memoryTable, "start", "globalPid", "address", "bytes", "memKind", "memoryOperationType")
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(c.refuseView(memoryTable), c.refuseView(callTable)); err != nil { // a view has no rowid
		return nil, err
	}
	m := &memory{converter: c}
	if m.kinds, err = c.memoryKinds(ctx); err != nil {
		return nil, err
	}
	if m.ops, err = c.memoryOps(ctx); err != nil {
		return nil, err
	}
	if f, err = newFeed(ctx, c.database, m.query()); err != nil {
		return nil, err
	}
	f.once, f.size, f.usable, f.add = true, memBytes, m.usable, m.add
	return f, nil
}

// query joins events with their calls. Several calls may have the correlation id of an event, such as one of the
// runtime and one of the driver: the first with a call stack counts, or the outermost.
func (m *memory) query() string {
	events := m.columns(memoryTable, "e", "start", "globalPid", "address", "bytes", "memKind", "memoryOperationType",
		"deviceId", "contextId", "name", "streamId", "localMemoryPoolAddress")
	if !m.has(callTable, "correlationId", "globalTid") || !m.has(memoryTable, "correlationId") {
		m.miss(callTable, "no names of calls, threads and call stacks of memory events")
		return fmt.Sprintf("SELECT %s, NULL, NULL, NULL, e.rowid FROM %s e ORDER BY e.start, e.rowid", events,
			memoryTable)
	}
	calls := m.columns(callTable, "r", "globalTid", "nameId", "callchainId")
	order := "r.rowid"
	if m.has(callTable, "start") {
		order = "r.start, " + order
	}
	if m.has(callTable, "callchainId") {
		order = "coalesce(r.callchainId, 0) = 0, " + order
	}
	return fmt.Sprintf(`SELECT %s, %s, e.rowid FROM %s e LEFT JOIN %s r ON e.correlationId != 0
		AND r.correlationId = e.correlationId AND (r.globalTid >> %d) = (e.globalPid >> %[5]d)
		ORDER BY e.start, e.rowid, %[6]s`, events, calls, memoryTable, callTable, processBits, order)
}

func (m *memory) usable(row []any) bool {
	_, process := row[memProcess].(int64)
	_, address := row[memAddress].(int64)
	_, bytes := number(row[memBytes])
	op := opOf(m.ops.word(row[memOp]))
	if op == schema.OpUnknown {
		m.noteOperation()
	}
	return process && address && bytes && op != schema.OpUnknown &&
		(op == schema.OpFree || bits(row[memAddress]) != 0)
}

func (m *memory) add(row []any) (schema.Kind, error) {
	b := m.out.open[schema.KindMemory]
	global := bits(row[memProcess])
	if thread := bits(row[memThread]); thread != 0 {
		global = thread
	}
	pid, at := pidOf(global), place{pidOf(global), bits(row[memAddress])}
	e := schema.Memory{
		Time: schema.KTime(bits(row[memStart])), Thread: b.thread(global), GPU: b.gpu(pid, row[memDevice]),
		Ptr: at.address, Bytes: bits(row[memBytes]),
	}
	call := schema.CallRef{Op: opOf(m.ops.word(row[memOp]))}
	call.Class = m.class(row, call.Op)
	if call.Class == schema.ClassPool {
		e.Aux, e.Pool = bits(row[memStream]), bits(row[memPool])
	}
	if handle := bits(row[memContext]); handle != 0 {
		e.Context = b.Context(schema.Context{Handle: handle, GPU: e.GPU})
	}
	var err error
	if call.Symbol, err = m.names.call(row[memCall]); err != nil {
		return 0, err
	}
	if e.Stack, err = m.stack(b, row, call.Symbol != ""); err != nil {
		return 0, err
	}
	e.Call = b.Call(call)
	b.AddMemory(&e)
	m.live.see(at, call.Op, e.Bytes, &m.Summary)
	return schema.KindMemory, nil
}

// class returns the class of the memory: device memory from a pool has a class of its own.
func (m *memory) class(row []any, op schema.Op) schema.MemClass {
	class, known := classOf(m.kinds.word(row[memKind]))
	if !known {
		m.noteKind(row, op)
	}
	if class == schema.ClassDevice && bits(row[memPool]) != 0 {
		return schema.ClassPool
	}
	return class
}

// stack interns the call stack and the name of the variable, and counts what is known of the call.
func (m *memory) stack(b *openBatch, row []any, called bool) (uint32, error) {
	frames, err := m.names.frames(row[memChain])
	if err != nil {
		return 0, err
	}
	name := text(row[memName])
	if _, ok := row[memName].(int64); ok { // some versions refer to StringIds
		if name, err = m.names.of(row[memName]); err != nil {
			return 0, err
		}
	}
	switch {
	case len(frames) > 0:
		m.WithStack++
	case called:
		m.WithCall++
	default:
		m.WithoutCall++
	}
	if len(frames) == 0 && name == "" {
		return 0, nil
	}
	return b.Stack(schema.Stack{Frames: frames, Name: name}), nil
}
