package source

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"time"

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
	End       time.Time          // when NATS stored the last message that Movements read; zero: none

	reader *recording.Reader
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
