package schema

import (
	"encoding/binary"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

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
	keyEnds        = "ends"
	keyLinux       = "linux"
	keyProducer    = "prod"
	keyOlder       = "older"
	keyOrigin      = "on"
	keyStacks      = "stacks"
)

// Encode returns the batch as one message and leaves the Builder unchanged. h provides identity, seq, clock and losses;
// its Minor, Kind, Events, First and Last are ignored. The bytes are valid until the next Encode.
func (b *Builder) Encode(h *Header) []byte {
	b.buf.Reset()
	b.buf.Write(envelopeRoom[:])
	w := &b.writer
	w.keys = 0
	b.writeHeader(w, h)
	b.writeDictionaries(w)
	if b.kind == KindHost {
		w.text(keyLinux, b.Linux)
		w.text(keyProducer, b.Producer)
	}
	if b.kind == KindRank {
		w.text(keyOrigin, b.Origin)
	}
	if b.Older != nil {
		w.numbers(keyOlder, b.Older)
	}
	if b.events > 0 {
		b.writeColumns(w)
	}
	return openEnvelope(b.buf.Bytes(), w.keys)
}

var envelopeRoom [3]byte // for the longest map header that openEnvelope writes

// openEnvelope writes the map header in front of its entries.
func openEnvelope(message []byte, entries int) []byte {
	if entries < 16 {
		message[2] = msgpcode.FixedMapLow | byte(entries)
		return message[2:]
	}
	message[0] = msgpcode.Map16
	binary.BigEndian.PutUint16(message[1:], uint16(entries))
	return message
}

func (b *Builder) writeHeader(w *writer, h *Header) {
	w.number(keyVersion, minorVersion)
	w.text(keyKind, b.kind.String())
	w.text(keyCluster, h.Cluster)
	w.text(keyHost, h.Host)
	w.text(keyBoot, h.BootID)
	w.number(keyRun, h.Run)
	w.number(keySeq, h.Seq)
	w.number(keyEvents, uint64(b.events))
	w.key(keyOffset)
	_ = w.enc.EncodeInt(h.ClockOffset)
	w.number(keyFirst, uint64(b.First()))
	w.number(keyLast, uint64(b.Last()))
	w.losses(&h.Lost)
}

func (b *Builder) writeDictionaries(w *writer) {
	writeRows(w, DictProcesses, b.processes.values, (*row).process)
	writeRows(w, DictThreads, b.threads.values, (*row).thread)
	writeRows(w, DictGPUs, b.gpus.values, (*row).gpu)
	writeRows(w, DictCalls, b.calls.values, (*row).call)
	writeRows(w, DictFuncs, b.funcs.values, (*row).function)
	writeRows(w, DictShapes, b.shapes.values, (*row).shape)
	writeRows(w, DictGraphs, b.graphs, (*row).graph)
	writeRows(w, DictContexts, b.contexts.values, (*row).context)
	if len(b.cudaStreams.values) > 0 {
		w.numbers(keyCUDAStreams, b.cudaStreams.values)
	}
	writeRows(w, DictLibraries, b.Libraries, (*row).library)
	writeRows(w, DictCoverage, b.Coverage, (*row).coverage)
	writeRows(w, DictEnds, b.Ends, (*row).end)
	writeRows(w, DictStacks, b.stacks, (*row).stack)
}

func (b *Builder) writeColumns(w *writer) {
	w.key(keyColumns)
	_ = w.enc.EncodeMapLen(b.writtenColumns())
	for _, id := range kindColumns[b.kind] {
		c := &b.columns[id]
		if rareColumns[id] && c.max == 0 {
			continue
		}
		width := c.width()
		_ = w.enc.EncodeString(columnKeys[id])
		_ = w.enc.EncodeArrayLen(3)
		_ = w.enc.EncodeUint(c.min)
		_ = w.enc.EncodeUint(uint64(width))
		b.scratch = c.appendData(b.scratch[:0], width)
		_ = w.enc.EncodeBytes(b.scratch)
	}
}

func (b *Builder) writtenColumns() (n int) {
	for _, id := range kindColumns[b.kind] {
		if !rareColumns[id] || b.columns[id].max > 0 {
			n++
		}
	}
	return n
}

// writer writes the entries of an envelope to a bytes.Buffer. It ignores errors, because such a write cannot fail.
type writer struct {
	enc  *msgpack.Encoder
	keys int
	row  row // the row at hand; a local variable would escape to the heap for every dictionary
}

func (w *writer) key(key string) {
	w.keys++
	_ = w.enc.EncodeString(key)
}

func (w *writer) number(key string, v uint64) {
	w.key(key)
	_ = w.enc.EncodeUint(v)
}

func (w *writer) numbers(key string, list []uint64) {
	w.key(key)
	_ = w.enc.EncodeArrayLen(len(list))
	for _, v := range list {
		_ = w.enc.EncodeUint(v)
	}
}

func (w *writer) text(key, s string) {
	w.key(key)
	writeText(w.enc, s)
}

func (w *writer) losses(lost *[NumLosses]uint64) {
	causes := 0
	for _, n := range lost {
		if n > 0 {
			causes++
		}
	}
	w.key(keyLost)
	_ = w.enc.EncodeMapLen(causes)
	for cause, n := range lost {
		if n > 0 {
			_ = w.enc.EncodeString(Loss(cause).String())
			_ = w.enc.EncodeUint(n)
		}
	}
}

func writeText(enc *msgpack.Encoder, s string) { _ = enc.EncodeString(s[:min(len(s), maxString)]) }
