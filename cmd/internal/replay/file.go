package replay

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// File is a recording, or the selected part of one.
type File struct {
	path      string
	selection recording.Selection
	jobs      *recording.JobHosts // on which the selected job runs; nil without one
	log       *slog.Logger
	in        *recording.Reader
	streams   []recording.Stream // of each shard, in order
	kinds     []schema.Kind      // that the recording selects; none: all
	hosts     *moved.Hosts
	summary   Summary
	damages   map[int64]bool // offsets of those that were reported
	written   time.Time      // when the file was written to
}

// Summary describes the contents of a recording without its damaged parts.
type Summary struct {
	Messages    uint64 // of the blocks with selected messages
	First, Last time.Time
	Kinds       []string
}

// Open opens a recording. Close it after use.
func Open(path string, s recording.Selection, log *slog.Logger) (*File, error) {
	in, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, selection: s, log: log, in: in, damages: map[int64]bool{}}
	if info, err := os.Stat(path); err == nil {
		f.written = info.ModTime()
	}
	err = f.summarize()
	if err == nil {
		f.hosts, err = moved.Find(f.streams, f.sections(), values(f.inFileOrder()))
	}
	if err == nil && s.Job != "" {
		err = f.findJob()
	}
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the recording.
func (f *File) Close() error { return f.in.Close() }

// Summary describes the recording.
func (f *File) Summary() Summary { return f.summary }

// IsEmpty reports whether the file has neither streams nor messages: its writer was killed before it wrote them.
func (f *File) IsEmpty() bool { return len(f.streams) == 0 }

// Damages returns how many damaged parts were found so far.
func (f *File) Damages() int { return len(f.damages) }

// summarize reads the summaries of all blocks.
func (f *File) summarize() error {
	byShard := map[int]recording.Stream{}
	for b, err := range f.in.Summaries() {
		if err != nil {
			if err := f.report(err); err != nil {
				return err
			}
			continue
		}
		for _, s := range b.Streams {
			byShard[s.Shard] = s
		}
		if b.Type == recording.TypeStreams {
			f.kinds = b.Selection.Kinds
		}
		f.add(b, byShard)
	}
	for _, s := range byShard {
		f.streams = append(f.streams, s)
	}
	slices.SortFunc(f.streams, func(a, b recording.Stream) int { return a.Shard - b.Shard })
	f.streams = moved.Streams(f.streams, f.kinds)
	return nil
}

// add adds a block of messages to the summary. If the stream of a shard lies in a damaged block, the messages
// still name the shard.
func (f *File) add(b *recording.Block, byShard map[int]recording.Stream) {
	s := &f.summary
	if b.Type != recording.TypeMessages {
		return
	}
	if s.First.IsZero() || b.Since.Before(s.First) {
		s.First = b.Since
	}
	if b.Until.After(s.Last) {
		s.Last = b.Until
	}
	for _, r := range b.Shards {
		s.Messages += r.Messages
		if _, known := byShard[r.Shard]; !known {
			byShard[r.Shard] = recording.Stream{Shard: r.Shard, After: max(r.First, 1) - 1,
				State: recording.KnowledgeNone}
		}
	}
	for _, k := range b.Kinds {
		if !slices.Contains(s.Kinds, k.Kind) {
			s.Kinds = append(s.Kinds, k.Kind)
		}
	}
}

// watched returns the kinds of events that are replayed: those of the messages, and those that the recording selects,
// as that of gputap run selects its features. It reports whether all others are missing; a recording of all kinds does
// not tell whether a kind without messages was watched.
func (f *File) watched() (kinds []string, complete bool) {
	kinds = slices.Clone(f.summary.Kinds)
	for _, k := range f.kinds {
		kinds = append(kinds, k.String())
	}
	if len(f.selection.Kinds) > 0 {
		kinds = slices.DeleteFunc(kinds, func(word string) bool {
			return !slices.Contains(f.selection.Kinds, schema.ParseKind(word))
		})
	}
	return kinds, len(f.kinds)+len(f.selection.Kinds) > 0
}

// report logs a damage once. It returns any other error.
func (f *File) report(err error) error {
	d, isDamage := errors.AsType[*recording.Damage](err)
	if !isDamage {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if !f.damages[d.Offset] {
		f.damages[d.Offset] = true
		f.log.Warn("the recording is damaged; continuing behind it", "file", f.path, "offset", d.Offset, "bytes",
			d.Bytes, "err", d.Reason)
	}
	return nil
}

// sections yields the selected sections of state.
func (f *File) sections() iter.Seq2[recording.Section, error] {
	return func(yield func(recording.Section, error) bool) {
		for s, err := range f.in.State() {
			if err != nil {
				if err := f.report(err); err != nil {
					yield(s, err)
					return
				}
				continue
			}
			if f.hasState(&s) && !yield(s, nil) {
				return
			}
		}
	}
}

// hasState reports whether a section belongs to the selection. What belongs to no host does not belong to selected
// hosts, and is empty before the first message of a shard.
func (f *File) hasState(s *recording.Section) bool {
	if s.Cluster+s.Host == "" && slices.ContainsFunc(f.streams, func(stream recording.Stream) bool {
		return stream.Shard == s.Shard && stream.State == recording.KnowledgeComplete && stream.After == 0
	}) {
		return false
	}
	if f.selection.Cluster == "" && f.selection.Host == "" && f.jobs == nil {
		return true
	}
	return (s.Cluster != "" || s.Host != "") && f.selection.HasHost(s.Cluster, s.Host) &&
		(f.jobs == nil || f.jobs.Has(recording.HostOf(s.Cluster, s.Host)))
}

// inFileOrder yields the selected messages as the file has them. Data are valid until the next message.
func (f *File) inFileOrder() iter.Seq2[*recording.Message, error] {
	return f.messages(f.in, recording.Filter{Selection: f.selection})
}

// inOrder yields the selected messages with those of each host in order. Data are valid until the next message.
func (f *File) inOrder() iter.Seq2[*recording.Message, error] {
	return func(yield func(*recording.Message, error) bool) {
		for _, shards := range f.hosts.Groups() {
			for m, err := range f.messages(f.in, recording.Filter{Selection: f.selection, Shards: shards}) {
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

func values(messages iter.Seq2[*recording.Message, error]) iter.Seq2[recording.Message, error] {
	return func(yield func(recording.Message, error) bool) {
		for m, err := range messages {
			if err != nil {
				yield(recording.Message{}, err)
				return
			}
			if !yield(*m, nil) {
				return
			}
		}
	}
}

func (f *File) messages(in *recording.Reader, filter recording.Filter) iter.Seq2[*recording.Message, error] {
	return func(yield func(*recording.Message, error) bool) {
		for m, err := range in.Messages(filter) {
			if err != nil {
				if err := f.report(err); err != nil {
					yield(nil, err)
					return
				}
				continue
			}
			if f.jobs != nil && !f.jobs.Has(m.Host()) {
				continue
			}
			if !yield(&m, nil) {
				return
			}
		}
	}
}
