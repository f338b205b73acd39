package export

import (
	"encoding/binary"
	"io"
	"math"
)

// Fields of Perfetto's messages, by the numbers of its published schema: protos/perfetto/trace in its repository.
const (
	fieldPacket = 1 // Trace

	packetClocks   = 6 // TracePacket
	packetTime     = 8
	packetSequence = 10
	packetEvent    = 11
	packetInterned = 12
	packetFlags    = 13
	packetTrack    = 60

	trackID      = 1 // TrackDescriptor
	trackName    = 2
	trackProcess = 3
	trackThread  = 4
	trackParent  = 5
	trackCounter = 8

	processPID    = 1 // ProcessDescriptor
	processName   = 6
	processLabels = 8

	threadPID  = 1 // ThreadDescriptor
	threadTID  = 2
	threadName = 5

	counterUnit = 3 // CounterDescriptor
	unitBytes   = 3

	eventArgs     = 4 // TrackEvent
	eventType     = 9
	eventNameID   = 10
	eventTrack    = 11
	eventCategory = 22
	eventValue    = 30

	argNumber = 3 // DebugAnnotation: uint_value
	argFloat  = 5
	argText   = 6
	argName   = 10

	internedNames = 2 // InternedData
	internedID    = 1 // EventName
	internedName  = 2

	clocksClock   = 1 // ClockSnapshot
	clockID       = 1
	clockTime     = 2
	clockRealtime = 1
	clockBoottime = 6
)

// Flags of a TracePacket.
const (
	stateCleared = 1 // names have no numbers yet
	stateNeeded  = 2 // a name is the number of an earlier one
)

// Types of a TrackEvent.
const (
	typeBegin   = 1
	typeEnd     = 2
	typeInstant = 3
	typeCounter = 4
)

// traceEvent is a slice or an instant.
type traceEvent struct {
	track    uint64
	at       int64 // ns since 1970
	name     string
	category string
	args     args
}

// args are the details of an event: DebugAnnotations. Those that are unknown are left out.
type args message

func (a *args) text(name, value string) {
	if value != "" {
		a.add(message(nil).text(argName, name).text(argText, value))
	}
}

func (a *args) number(name string, n uint64) {
	if n != 0 {
		a.add(message(nil).text(argName, name).number(argNumber, n))
	}
}

func (a *args) float(name string, f float64) {
	if f != 0 {
		a.add(message(nil).text(argName, name).float(argFloat, f))
	}
}

func (a *args) add(one message) { *a = args(message(*a).part(eventArgs, one)) }

// traceWriter writes the packets of a trace as they come. It keeps the first error.
type traceWriter struct {
	out    io.Writer
	first  int64 // ns since 1970: what was live before begins with it
	tracks uint64
	names  map[string]uint64 // of events: kernels have long ones
	fresh  message           // names that the next packet declares
	buf    message
	err    error
}

// begin writes the first packet. Times are those of the wall clocks of the hosts. Perfetto takes times as those of its
// boot-time clock: the packet sets both equal.
func (w *traceWriter) begin(out io.Writer, first int64) {
	w.out, w.first, w.names = out, first, map[string]uint64{}
	var clocks message
	for _, id := range []uint64{clockBoottime, clockRealtime} {
		clocks = clocks.part(clocksClock, message(nil).number(clockID, id).number(clockTime, uint64(first)))
	}
	w.packet(message(nil).number(packetTime, uint64(first)).number(packetFlags, stateCleared).
		part(packetClocks, clocks))
}

func (w *traceWriter) packet(p message) {
	const sequence = 1 // of all packets: one writer
	w.buf = w.buf[:0].part(fieldPacket, p.number(packetSequence, sequence))
	if w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
}

// track declares a track below another one; 0: below none. of are the fields that say what the track is.
func (w *traceWriter) track(name string, parent uint64, of message) (id uint64) {
	w.tracks++
	t := message(nil).number(trackID, w.tracks).text(trackName, name)
	if parent > 0 {
		t = t.number(trackParent, parent)
	}
	w.packet(message(nil).part(packetTrack, append(t, of...)))
	return w.tracks
}

func (w *traceWriter) event(of uint64, track uint64, at int64, rest message) {
	e := message(nil).number(eventType, of).number(eventTrack, track)
	p := message(nil).number(packetTime, uint64(max(at, w.first))).number(packetFlags, stateNeeded)
	if len(w.fresh) > 0 {
		p, w.fresh = p.part(packetInterned, w.fresh), w.fresh[:0]
	}
	w.packet(p.part(packetEvent, append(e, rest...)))
}

// slice writes an event that takes time. end has the details that are known at its end.
func (w *traceWriter) slice(e *traceEvent, took int64, end args) error {
	w.event(typeBegin, e.track, e.at, w.fields(e))
	w.event(typeEnd, e.track, e.at+took, message(end))
	return w.err
}

func (w *traceWriter) instant(e *traceEvent) error {
	w.event(typeInstant, e.track, e.at, w.fields(e))
	return w.err
}

func (w *traceWriter) fields(e *traceEvent) message {
	id, known := w.names[e.name]
	if !known {
		id = uint64(len(w.names) + 1)
		w.names[e.name] = id
		w.fresh = w.fresh.part(internedNames, message(nil).number(internedID, id).text(internedName, e.name))
	}
	m := message(nil).number(eventNameID, id)
	if e.category != "" {
		m = m.text(eventCategory, e.category)
	}
	return append(m, e.args...)
}

// counter writes a point of a counter.
func (w *traceWriter) counter(track uint64, at int64, value uint64) error {
	w.event(typeCounter, track, at, message(nil).number(eventValue, value))
	return w.err
}

// message is a message in the binary form of Protocol Buffers. Each method appends one field.
type message []byte

// Wire types.
const (
	wireVarint = 0
	wireFixed  = 1 // 8 bytes
	wireBytes  = 2
)

func (m message) tag(field, wire int) message {
	return binary.AppendUvarint(m, uint64(field)<<3|uint64(wire))
}

func (m message) number(field int, n uint64) message {
	return binary.AppendUvarint(m.tag(field, wireVarint), n)
}

func (m message) float(field int, f float64) message {
	return binary.LittleEndian.AppendUint64(m.tag(field, wireFixed), math.Float64bits(f))
}

func (m message) text(field int, s string) message {
	return append(binary.AppendUvarint(m.tag(field, wireBytes), uint64(len(s))), s...)
}

func (m message) part(field int, p message) message {
	return append(binary.AppendUvarint(m.tag(field, wireBytes), uint64(len(p))), p...)
}
