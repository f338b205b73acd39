package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/redact"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/schema/recording"
)

// output is the file that is written, and with rotation the files before it.
type output struct {
	*Options
	path   string // of the current file; "" for a pipe
	number int    // of the current file; 0 without rotation
	files  int    // written by this recorder
	first  string // path of the first of them
	w      *recording.Writer
	found  *continued
	redact *redact.Redactor // nil: names stay

	streams  []recording.Stream // of the current file
	last     map[int]uint64     // last sequence of each shard
	started  bool               // the current file has messages
	closed   int64              // bytes of earlier files
	existing int64              // bytes that the first file had before
	earlier  uint64             // events in earlier files
}

// continued describes the file that the recorder continues.
type continued struct{ recording.Recorded }

func (f *continued) isNew() bool { return len(f.Streams) == 0 }

// shard returns the stream and the last recorded sequence of a shard.
func (f *continued) shard(shard int) (stream recording.Stream, last uint64, known bool) {
	for _, s := range f.Streams {
		if s.Shard == shard {
			stream, known = s, true
		}
	}
	for _, r := range f.Last {
		if r.Shard == shard {
			last = r.Last
		}
	}
	return stream, last, known
}

func (f *continued) hasShard(shard int) bool {
	_, _, known := f.shard(shard)
	return known
}

// openOutput opens the file to continue, or a new one.
func openOutput(o *Options) (*output, error) {
	out := &output{Options: o, path: o.Path, found: &continued{}, last: map[int]uint64{}}
	if o.Redact {
		out.redact = redact.New(o.Log)
	}
	var err error
	if o.Path == "" {
		out.w, err = recording.NewWriter(o.To)
		return out, err
	}
	if o.MaxFileBytes > 0 {
		if out.number, err = lastNumber(o.Path); err != nil {
			return nil, err
		}
		out.number = max(out.number, 1)
		out.path = numbered(o.Path, out.number)
	}
	if err := out.open(); err != nil {
		return nil, err
	}
	if out.found.isNew() && out.number > 1 { // a kill came before its beginning was whole: continue the file before
		if err := errors.Join(out.w.Close(), os.Remove(out.path)); err != nil {
			return nil, err
		}
		out.number--
		out.path = numbered(o.Path, out.number)
		if err := out.open(); err != nil {
			return nil, err
		}
	}
	out.files, out.first = 1, out.path
	if !out.found.isNew() {
		out.existing = out.w.Bytes()
	}
	out.streams = out.found.Streams
	for _, r := range out.found.Last {
		out.last[r.Shard], out.started = r.Last, true
	}
	return out, nil
}

func (o *output) open() error {
	w, found, err := recording.Append(o.path)
	if err != nil {
		return err
	}
	o.w, o.found = w, &continued{*found}
	o.files++
	return nil
}

// numbered returns the path of a file of a rotated recording: run.gtr gives run-000001.gtr.
func numbered(path string, number int) string {
	extension := filepath.Ext(path)
	return fmt.Sprintf("%s-%06d%s", strings.TrimSuffix(path, extension), number, extension)
}

// lastNumber returns the highest number of the existing files, or 0.
func lastNumber(path string) (last int, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return 0, fmt.Errorf("look for files of the recording: %w", err)
	}
	extension := filepath.Ext(path)
	prefix := strings.TrimSuffix(filepath.Base(path), extension) + "-"
	for _, e := range entries {
		rest, isOurs := strings.CutPrefix(e.Name(), prefix)
		digits, hasExtension := strings.CutSuffix(rest, extension)
		if n, err := strconv.Atoi(digits); err == nil && isOurs && hasExtension && len(digits) >= 6 {
			last = max(last, n)
		}
	}
	return last, nil
}

func (o *output) addSection(s recording.Section) (err error) {
	if o.redact != nil {
		if s, err = o.redact.Section(s); err != nil {
			return err
		}
	}
	return o.w.AddSection(s)
}

func (o *output) addStreams(streams []recording.Stream) error {
	if len(streams) == 0 {
		return nil
	}
	o.streams = append(o.streams[:len(o.streams):len(o.streams)], streams...)
	selection := o.Selection
	if o.redact != nil {
		selection = o.redact.Selection(selection)
	}
	return o.w.AddStreams(selection, streams)
}

func (o *output) append(m *recording.Message) error {
	written := m
	if o.redact != nil {
		redacted, err := o.redact.Message(m)
		if err != nil {
			return err
		}
		written = &redacted
	}
	if err := o.w.Append(written); err != nil {
		return err
	}
	o.last[m.Shard], o.started = m.Sequence, true
	return nil
}

func (o *output) flush() error { return o.w.Flush() }

func (o *output) bytes() int64 { return o.closed + o.w.Bytes() - o.existing }

func (o *output) events() uint64 { return o.earlier + o.w.Events() }

// full reports whether the next message belongs into the next file.
func (o *output) full() bool { return o.MaxFileBytes > 0 && o.started && o.w.Bytes() >= o.MaxFileBytes }

// rotate closes the file and begins the next one, with the states of the shards at this moment.
func (o *output) rotate(replays map[int]*consumer.Replay) error {
	if err := o.w.Close(); err != nil {
		return err
	}
	o.closed, o.earlier = o.bytes(), o.events()
	o.existing, o.started = 0, false
	o.number++
	o.path = numbered(o.Path, o.number)
	if err := o.open(); err != nil {
		return err
	}
	if !o.found.isNew() {
		return fmt.Errorf("begin the next file of the recording: %s exists: move it away", o.path)
	}
	streams := o.streams
	o.streams = nil
	for i := range streams {
		s := &streams[i]
		s.After, s.State = max(s.After, o.last[s.Shard]), recording.KnowledgeNone
		p := replays[s.Shard]
		if p == nil {
			continue
		}
		if s.State = recording.KnowledgePartial; p.Whole() {
			s.State = recording.KnowledgeComplete
		}
		if err := p.Sections(o.addSection); err != nil {
			return err
		}
	}
	return o.addStreams(streams)
}

func (o *output) close() error {
	if o.w == nil {
		return errors.New("no file is open")
	}
	return o.w.Close()
}
