package source

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/moved"
	"github.com/gputap/gputap/producer/nsys"
	"github.com/gputap/gputap/schema/recording"
)

// Source is an open recording.
type Source struct {
	Name      string // as the user gave it
	Selection recording.Selection
	Streams   []recording.Stream
	Damages   []recording.Damage // that were read so far, each once
	Nsight    *nsys.Summary      // of an export of Nsight Systems; nil: it is a recording of gputap
	End       time.Time          // when NATS stored the latest message that Movements read; zero: none

	reader *recording.Reader
	hosts  *moved.Hosts   // nil before Hosts
	ofBus  bool           // it is a range of a bus: its times select what is recorded
	lost   error          // of a range of a bus: messages that the recording lacks
	seen   map[int64]bool // offsets of damages
}

// Open opens a recording, or an export of Nsight Systems, which it converts.
func Open(ctx context.Context, path string) (*Source, error) {
	if nsys.Is(path) {
		return openNsight(ctx, path)
	}
	s, err := openRecording(path)
	if errors.Is(err, recording.ErrNotRecording) {
		switch strings.ToLower(filepath.Ext(path)) {
		case ".sqlite":
			return openNsight(ctx, path) // it says what is wrong with the export
		case ".nsys-rep", ".qdrep":
			return nil, fmt.Errorf("open %s: it is a report of Nsight Systems, and gputap reads its export; convert "+
				"it with nsys export --type sqlite %[1]s, and name the .sqlite file", path)
		}
	}
	return s, err
}

func openRecording(path string) (*Source, error) {
	reader, err := recording.Open(path)
	if errors.Is(err, recording.ErrNotRecording) {
		return nil, fmt.Errorf("%w; make one with gputap record or gputap run --record", err)
	}
	if err != nil {
		return nil, err
	}
	s := &Source{Name: path, reader: reader, seen: map[int64]bool{}}
	if s.Selection, s.Streams, err = reader.Streams(); err != nil {
		_ = reader.Close() // it was only read
		return nil, err
	}
	s.Streams = moved.Streams(s.Streams, s.Selection.Kinds)
	return s, nil
}

// Close closes the file.
func (s *Source) Close() { _ = s.reader.Close() } // it was only read

// State yields the sections of state at the beginning.
func (s *Source) State() iter.Seq2[recording.Section, error] { return whole(s, s.reader.State()) }

// Messages yields the selected messages. Data are valid until the next message.
func (s *Source) Messages(f recording.Filter) iter.Seq2[recording.Message, error] {
	return whole(s, s.reader.Messages(f))
}

// Hosts tells which hosts moved to another shard. The first call may read the file.
func (s *Source) Hosts(ctx context.Context) (_ *moved.Hosts, err error) {
	if s.hosts == nil {
		s.hosts, err = moved.Find(s.Streams, until(ctx, s.State()), until(ctx, s.Messages(recording.Filter{})))
	}
	return s.hosts, err
}

// InOrder yields the selected messages with those of each host in order, each as its lane has it. Data are valid until
// the next message.
func (s *Source) InOrder(ctx context.Context, f recording.Filter) iter.Seq2[Routed, error] {
	return func(yield func(Routed, error) bool) {
		hosts, err := s.Hosts(ctx)
		if err != nil {
			yield(Routed{}, err)
			return
		}
		for _, f.Shards = range hosts.Groups() {
			for m, err := range until(ctx, s.Messages(f)) {
				if err != nil {
					yield(Routed{}, err)
					return
				}
				one := Routed{Recorded: &m}
				if one.Lane, one.Message = hosts.Of(&m); !yield(one, nil) {
					return
				}
			}
		}
	}
}

// Routed is a message as the fold of its lane takes it.
type Routed struct {
	recording.Message
	Lane     *moved.Lane
	Recorded *recording.Message // as the file has it
}

// until yields items until ctx ends. Its error is the last item then.
func until[T any](ctx context.Context, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range all {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// whole yields all items that are not damaged. An error is the last item.
func whole[T any](s *Source, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range all {
			if damage, is := errors.AsType[*recording.Damage](err); is {
				if !s.seen[damage.Offset] {
					s.seen[damage.Offset] = true
					s.Damages = append(s.Damages, *damage)
				}
				continue
			}
			if !yield(item, err) {
				return
			}
		}
	}
}
