package schema

import "github.com/vmihailenco/msgpack/v5"

// minorVersion of the form that Encode writes. The major version, 1, is in the subject.
const minorVersion = 0

// Envelope keys. doc.go and docs/wire.md explain them.
const (
	keyVersion     = "v"
	keyKind        = "k"
	keyCluster     = "cl"
	keyHost        = "h"
	keyBoot        = "boot"
	keyRun         = "run"
	keySeq         = "seq"
	keyEvents      = "n"
	keyOffset      = "off"
	keyFirst       = "t0"
	keyLast        = "t1"
	keyLost        = "lost"
	keyProcesses   = "procs"
	keyThreads     = "threads"
	keyGPUs        = "gpus"
	keyCalls       = "calls"
	keyFuncs       = "funcs"
	keyShapes      = "shapes"
	keyGraphs      = "graphs"
	keyContexts    = "ctxs"
	keyCUDAStreams = "streams"
	keyColumns     = "cols"
	keyLibraries   = "libs"
	keyCoverage    = "cover"
	keyLinux       = "linux"
	keyProducer    = "prod"
	keyOlder       = "older"
)

// Encode returns the batch as one message and leaves the Builder unchanged. h provides identity, seq, clock and losses;
// its Minor, Kind, Events, First and Last are ignored. The bytes are valid until the next Encode.
func (b *Builder) Encode(h *Header) []byte {
	b.buf.Reset()
	e := envelope{enc: b.enc}
	own := *h
	own.Kind, own.Events, own.First, own.Last = b.kind, b.events, b.First(), b.Last()
	e.head(b.keys(), &own)
	b.encodeDictionaries(e)
	b.encodeHeartbeat(e)
	if b.Older != nil {
		e.key(keyOlder)
		e.row(len(b.Older))
		for _, pid := range b.Older {
			e.u(pid)
		}
	}
	b.encodeColumns(e)
	return b.buf.Bytes()
}

// head opens the envelope and writes the header.
func (e envelope) head(keys int, h *Header) {
	e.open(keys)
	e.uint(keyVersion, minorVersion)
	e.string(keyKind, h.Kind.String())
	e.string(keyCluster, h.Cluster)
	e.string(keyHost, h.Host)
	e.string(keyBoot, h.BootID)
	e.uint(keyRun, h.Run)
	e.uint(keySeq, h.Seq)
	e.uint(keyEvents, uint64(h.Events))
	e.key(keyOffset)
	_ = e.enc.EncodeInt(h.ClockOffset)
	e.uint(keyFirst, uint64(h.First))
	e.uint(keyLast, uint64(h.Last))
	e.lost(h)
}

// Last returns the latest entry time added, 0 without events.
func (b *Builder) Last() KTime {
	if b.events == 0 {
		return 0
	}
	return KTime(b.columns[colTime].max)
}

// keys counts the entries of the envelope. Empty dictionaries are not written.
func (b *Builder) keys() int {
	n := 12
	for _, used := range []bool{
		len(b.processes.values) > 0, len(b.threads.values) > 0, len(b.gpus.values) > 0, len(b.calls.values) > 0,
		len(b.funcs.values) > 0, len(b.shapes.values) > 0, len(b.graphs) > 0, len(b.contexts.values) > 0,
		len(b.cudaStreams.values) > 0,
		len(b.Coverage) > 0, b.events > 0, b.Older != nil,
	} {
		if used {
			n++
		}
	}
	if b.kind == KindHost {
		n += 3
	}
	return n
}

func (b *Builder) encodeDictionaries(e envelope) {
	if e.list(keyProcesses, len(b.processes.values)) {
		for i := range b.processes.values {
			p := &b.processes.values[i]
			e.row(12)
			e.u(uint64(p.PID))
			e.u(uint64(p.Start))
			e.u(uint64(p.UID))
			e.s(p.Comm)
			e.s(p.Exe)
			e.s(p.Container)
			e.u(flag(p.Late))
			e.s(p.User)
			e.u(uint64(p.NSPID))
			e.s(p.Cgroup)
			e.s(p.Pod)
			e.s(p.Unit)
		}
	}
	if e.list(keyThreads, len(b.threads.values)) {
		for i := range b.threads.values {
			t := &b.threads.values[i]
			e.row(3)
			e.u(uint64(t.Process))
			e.u(uint64(t.TID))
			e.s(t.Comm)
		}
	}
	if e.list(keyGPUs, len(b.gpus.values)) {
		for _, g := range b.gpus.values {
			e.row(5)
			e.s(g.UUID)
			e.u(uint64(g.Ordinal))
			e.u(flag(g.Inferred))
			e.s(g.Name)
			e.s(g.Bus)
		}
	}
	if e.list(keyCalls, len(b.calls.values)) {
		for _, c := range b.calls.values {
			e.row(4)
			e.s(c.Symbol)
			e.s(c.Op.String())
			e.s(c.Class.String())
			e.s(c.Direction.String())
		}
	}
	if e.list(keyFuncs, len(b.funcs.values)) {
		for _, f := range b.funcs.values {
			e.row(3)
			e.s(f.Name)
			e.u(f.Handle)
			e.u(flag(f.Read))
		}
	}
	if e.list(keyShapes, len(b.shapes.values)) {
		for i := range b.shapes.values {
			s := &b.shapes.values[i]
			e.row(9)
			for _, v := range [...]uint32{
				s.Call, s.Func, s.Grid[0], s.Grid[1], s.Grid[2], s.Block[0], s.Block[1], s.Block[2], s.SharedBytes,
			} {
				e.u(uint64(v))
			}
		}
	}
	if e.list(keyGraphs, len(b.graphs)) {
		for i := range b.graphs {
			g := &b.graphs[i]
			e.row(3)
			e.u(uint64(g.Func))
			e.u(flag(g.Partial))
			e.row(2 * len(g.Nodes))
			for _, n := range g.Nodes {
				e.u(uint64(n.Func))
				e.u(uint64(n.Count))
			}
		}
	}
	if e.list(keyContexts, len(b.contexts.values)) {
		for _, c := range b.contexts.values {
			e.row(2)
			e.u(c.Handle)
			e.u(uint64(c.GPU))
		}
	}
	if e.list(keyCUDAStreams, len(b.cudaStreams.values)) {
		for _, q := range b.cudaStreams.values {
			e.u(q)
		}
	}
}

func (b *Builder) encodeHeartbeat(e envelope) {
	if b.kind != KindHost {
		return
	}
	e.key(keyLibraries)
	e.row(len(b.Libraries))
	for i := range b.Libraries {
		l := &b.Libraries[i]
		e.row(6)
		e.s(l.Path)
		e.u(l.Inode)
		e.u(uint64(l.Attached))
		e.u(uint64(l.Stepped))
		e.strings(l.Absent)
		e.strings(l.Failed)
	}
	if e.list(keyCoverage, len(b.Coverage)) {
		for i := range b.Coverage {
			c := &b.Coverage[i]
			e.row(4)
			e.u(uint64(c.Process))
			e.u(uint64(c.Asked))
			e.strings(c.Outside)
			e.u(uint64(c.ExportTables))
		}
	}
	e.string(keyLinux, b.Linux)
	e.string(keyProducer, b.Producer)
}

func (b *Builder) encodeColumns(e envelope) {
	if b.events == 0 {
		return
	}
	ids := kindColumns[b.kind]
	e.key(keyColumns)
	_ = e.enc.EncodeMapLen(len(ids))
	for _, id := range ids {
		c := &b.columns[id]
		e.key(columnKeys[id])
		width := c.width()
		e.row(3)
		e.u(c.min)
		e.u(uint64(width))
		b.scratch = c.appendData(b.scratch[:0], width)
		_ = e.enc.EncodeBytes(b.scratch)
	}
}

// envelope writes msgpack to a bytes.Buffer. Its methods ignore errors, because such a write cannot fail.
type envelope struct{ enc *msgpack.Encoder }

func (e envelope) open(keys int)             { _ = e.enc.EncodeMapLen(keys) }
func (e envelope) key(k string)              { _ = e.enc.EncodeString(k) }
func (e envelope) row(n int)                 { _ = e.enc.EncodeArrayLen(n) }
func (e envelope) u(v uint64)                { _ = e.enc.EncodeUint(v) }
func (e envelope) s(v string)                { _ = e.enc.EncodeString(v[:min(len(v), maxString)]) }
func (e envelope) uint(k string, v uint64)   { e.key(k); e.u(v) }
func (e envelope) string(k string, v string) { e.key(k); e.s(v) }
func (e envelope) list(k string, n int) (some bool) {
	if n == 0 {
		return false
	}
	e.key(k)
	e.row(n)
	return true
}

func (e envelope) strings(list []string) {
	e.row(len(list))
	for _, s := range list {
		e.s(s)
	}
}

func (e envelope) lost(h *Header) {
	e.key(keyLost)
	n := 0
	for _, v := range h.Lost {
		if v > 0 {
			n++
		}
	}
	_ = e.enc.EncodeMapLen(n)
	for cause, v := range h.Lost {
		if v > 0 {
			e.uint(Loss(cause).String(), v)
		}
	}
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
