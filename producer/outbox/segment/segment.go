package segment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gputap/gputap/schema"
)

// Position is a place in the log of a kind, which is its segments one after the other. Batches and Events count from
// the first batch that the directory ever had.
type Position struct {
	Segment, Batches, Events uint64
	Off                      int64
}

// After is the position behind a batch.
func (p Position) After(bytes, events int) Position {
	return Position{p.Segment, p.Batches + 1, p.Events + uint64(events), p.Off + HeadBytes + int64(bytes)}
}

// Name identifies a segment; its string is the name of the file.
type Name struct {
	Kind   schema.Kind
	Number uint64   // 32 bits count the runs, 32 bits the segments of a run
	Begin  Position // of its first batch
	Lost   uint64   // events that the run had lost when the segment was made
}

// Run is the number of the run that made the segment.
func (n Name) Run() uint64 { return n.Number >> 32 }

func (n Name) String() string {
	return fmt.Sprintf("%016x-%x-%x-%x.%s", n.Number, n.Begin.Batches, n.Begin.Events, n.Lost, n.Kind)
}

// Parse reports false for a name that no segment has.
func Parse(name string) (n Name, ok bool) {
	var word string
	_, err := fmt.Sscanf(name, "%x-%x-%x-%x.%s", &n.Number, &n.Begin.Batches, &n.Begin.Events, &n.Lost, &word)
	n.Kind, n.Begin.Segment = schema.ParseKind(word), n.Number
	return n, err == nil && n.Kind != schema.KindNone && name == n.String()
}

// Found is a segment and the size of its file.
type Found struct {
	Name
	Bytes int64
}

// Segments lists the segments, the oldest first.
func (d *Dir) Segments() (found []Found, err error) {
	names, err := d.self.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		n, ok := Parse(name)
		if !ok {
			continue
		}
		info, err := d.root.Lstat(name)
		if err != nil {
			return nil, err
		}
		found = append(found, Found{n, info.Size()})
	}
	return found, nil
}

// Scan finds the end of a segment behind its last record with a good head, and the greatest number of lost events that
// a record reports.
func (d *Dir) Scan(n Name) (end Position, lost uint64, err error) {
	f, err := d.Open(n.String())
	if err != nil {
		return n.Begin, n.Lost, err
	}
	defer f.Close()
	end, lost = n.Begin, n.Lost
	for {
		h, err := ReadHead(f, end.Off)
		if errors.Is(err, ErrCorrupt) {
			return end, lost, nil
		}
		if err != nil {
			return end, lost, err
		}
		end, lost = end.After(int(h.Bytes), int(h.Events)), max(lost, h.Lost)
	}
}
