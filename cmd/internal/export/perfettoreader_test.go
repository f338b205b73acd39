package export

import (
	"bytes"
	"cmp"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traceTrack is a declared track.
type traceTrack struct {
	name            string
	parent          *traceTrack
	process, thread string // their PID and TID; "": it is none
	labels          string
	counter         bool
}

// traceSlice is a slice, or an instant.
type traceSlice struct {
	track          *traceTrack
	name, category string
	at, took       int64
	written        int64
	args           map[string]string // of both ends
}

type tracePoint struct {
	track *traceTrack
	at    int64
	value uint64
}

// traceFile is a trace as Perfetto understands it.
type traceFile struct {
	first    int64
	tracks   map[string]*traceTrack
	slices   []*traceSlice
	instants []*traceSlice
	points   []tracePoint
}

// parseTrace reads a trace with protoc and the schema of Perfetto. Each event must be on a declared track, slices must
// nest, and counters must be in the order of time.
func parseTrace(t *testing.T, data []byte) *traceFile {
	t.Helper()
	program, err := exec.LookPath("protoc")
	if err != nil {
		needs(t, "GPUTAP_REQUIRE_PROTOC", "protoc")
	}
	cmd := exec.Command(program, "--proto_path=testdata/perfetto", "--decode=perfetto.protos.Trace", "trace.proto")
	cmd.Stdin = bytes.NewReader(data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("protoc: %v: %s", err, stderr.Bytes())
	}
	root, rest := parseText(t, strings.Split(strings.TrimSpace(string(out)), "\n"))
	if len(rest) > 0 {
		t.Fatalf("protoc writes %q", rest[0])
	}
	f := &traceFile{tracks: map[string]*traceTrack{}}
	var events []*textMessage
	names := map[string]string{}
	for _, p := range root.parts["packet"] {
		for _, interned := range p.parts["interned_data"] {
			for _, n := range interned.parts["event_names"] {
				names[n.value("iid")] = n.value("name")
			}
		}
		switch {
		case p.parts["track_descriptor"] != nil:
			f.declare(t, p.parts["track_descriptor"][0])
		case p.parts["track_event"] != nil:
			e := p.parts["track_event"][0]
			if e.values["name"] = names[e.value("name_iid")]; p.value("sequence_flags") != "2" ||
				e.value("name_iid") == "0" { // Perfetto's numbers of names begin with 1
				t.Fatalf("%+v does not need the names before it", p)
			}
			events = append(events, p)
		case p.parts["clock_snapshot"] != nil && f.first == 0 && p.value("sequence_flags") == "1":
			f.first = p.number(t, "timestamp")
		default:
			t.Fatalf("a packet has nothing: %+v", p)
		}
		if p.value("trusted_packet_sequence_id") != "1" {
			t.Fatalf("%+v has no sequence", p)
		}
	}
	f.read(t, events)
	return f
}

// declare notes a track.
func (f *traceFile) declare(t *testing.T, d *textMessage) {
	t.Helper()
	track := &traceTrack{name: d.value("name"), parent: f.tracks[d.value("parent_uuid")],
		counter: d.parts["counter"] != nil}
	id := d.value("uuid")
	if f.tracks[id] != nil || id == "0" || track.name == "" || track.parent == nil && d.value("parent_uuid") != "" {
		t.Fatalf("track %+v", d)
	}
	for _, p := range d.parts["process"] {
		track.process, track.labels = p.value("pid"), p.value("process_labels")
		for _, other := range f.tracks {
			if other.process == track.process {
				t.Fatalf("two processes have the PID %s", track.process)
			}
		}
	}
	for _, p := range d.parts["thread"] {
		track.thread = p.value("tid")
		for _, of := range f.tracks {
			if of.process == p.value("pid") {
				track.parent = of
			}
		}
		if track.parent == nil {
			t.Fatalf("thread %+v has no process", d)
		}
	}
	f.tracks[id] = track
}

// read gives events to their tracks in the order of time, as Perfetto does.
func (f *traceFile) read(t *testing.T, events []*textMessage) {
	t.Helper()
	last := map[*traceTrack]int64{}
	written := map[*textMessage]int64{} // how long a slice takes. Its end is behind its begin in the file.
	for i, p := range events {          // in the order of the file
		e := p.parts["track_event"][0]
		track, at := f.tracks[e.value("track_uuid")], p.number(t, "timestamp")
		if track == nil || at < f.first || track.counter != (e.value("type") == "TYPE_COUNTER") {
			t.Fatalf("%+v is on no track, too early, or no counter", p)
		}
		// Calls of several threads mix, and Perfetto sorts them. gputap sorts counters and lifetimes.
		counter := strings.HasPrefix(track.name, "GPU memory") || strings.HasSuffix(track.name, " memory")
		if at < last[track] && counter {
			t.Fatalf("%+v is earlier than the event before it", p)
		}
		last[track] = at
		if e.value("type") == "TYPE_SLICE_BEGIN" {
			end := events[i+1]
			if of := end.parts["track_event"][0]; of.value("type") != "TYPE_SLICE_END" ||
				of.value("track_uuid") != e.value("track_uuid") {
				t.Fatalf("%+v is not ended by %+v", p, end)
			}
			written[p] = end.number(t, "timestamp") - at
		}
	}
	slices.SortStableFunc(events, func(a, b *textMessage) int {
		return cmp.Compare(a.number(t, "timestamp"), b.number(t, "timestamp"))
	})
	open := map[*traceTrack][]*traceSlice{}
	for _, p := range events {
		e := p.parts["track_event"][0]
		track := f.tracks[e.value("track_uuid")]
		s := &traceSlice{track: track, name: e.value("name"), category: e.value("categories"),
			at: p.number(t, "timestamp"), args: map[string]string{}}
		switch e.value("type") {
		case "TYPE_SLICE_BEGIN":
			s.written = written[p]
			open[track] = append(open[track], s)
			f.slices = append(f.slices, s)
		case "TYPE_SLICE_END":
			if len(open[track]) == 0 {
				t.Fatalf("%+v ends no slice", p)
			}
			at := s.at
			s = open[track][len(open[track])-1]
			s.took, open[track] = at-s.at, open[track][:len(open[track])-1]
			if s.took != s.written {
				t.Fatalf("slices overlap: %s on %s takes %d, and ends after %d", s.name, track.name, s.written,
					s.took)
			}
		case "TYPE_INSTANT":
			f.instants = append(f.instants, s)
		case "TYPE_COUNTER":
			f.points = append(f.points, tracePoint{track, s.at, uint64(e.number(t, "counter_value"))})
			continue
		default:
			t.Fatalf("%+v has no type", p)
		}
		if s.name == "" {
			t.Fatalf("%+v has no name", p)
		}
		for _, arg := range e.parts["debug_annotations"] {
			s.args[arg.value("name")] = arg.value("uint_value") + arg.value("string_value") + arg.value("double_value")
		}
	}
	for track, list := range open {
		if len(list) > 0 {
			t.Fatalf("%d slices of the track %s have no end", len(list), track.name)
		}
	}
}

// textMessage is a message as protoc prints it.
type textMessage struct {
	values map[string]string
	parts  map[string][]*textMessage
}

func (m *textMessage) value(name string) string { return m.values[name] }

func (m *textMessage) number(t *testing.T, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(m.values[name], 10, 64)
	check(t, err)
	return n
}

// parseText parses lines up to the one that ends a message. A field without a name is not in the schema.
func parseText(t *testing.T, lines []string) (m *textMessage, rest []string) {
	t.Helper()
	m = &textMessage{map[string]string{}, map[string][]*textMessage{}}
	for len(lines) > 0 {
		line := strings.TrimSpace(lines[0])
		lines = lines[1:]
		if line == "}" {
			break
		}
		if line[0] >= '0' && line[0] <= '9' {
			t.Fatalf("the schema of Perfetto has no such field: %s", line)
		}
		if name, begins := strings.CutSuffix(line, " {"); begins {
			var part *textMessage
			part, lines = parseText(t, lines)
			m.parts[name] = append(m.parts[name], part)
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		m.values[name] = value
	}
	return m, lines
}
