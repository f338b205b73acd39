package nsys

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Options of Convert. The zero value converts everything that the export has.
type Options struct {
	Kinds   []schema.Kind // to convert: memory, launch, copy; an absent table of one is an error. none: what there is
	Cluster string        // ""  is "nsight"
	Host    string        // ""  is the export's host name, or "nsight"
}

// Summary says what Convert found.
type Summary struct {
	Host    string
	Schema  string    // version of the export's form; "" if the export does not name it
	Session time.Time // start of the session; zero if unknown: times then count from 1970
	Events  [schema.NumKinds]uint64
	First   schema.KTime // of all events
	Last    schema.KTime

	// Memory events by what is known of their calls. A stack is known only if the report was made with
	// --cudabacktrace=memory.
	WithStack, WithCall, WithoutCall uint64

	UnmatchedFrees uint64 // of addresses that were not live
	Reallocations  uint64 // allocations at addresses that were live
	SizeMismatches uint64 // frees of another size than the allocation
	ImpossibleSize uint64 // rows with a size of 2^48 bytes or more: they were skipped
	Malformed      uint64 // rows without a usable time, process, address, size or operation: they were skipped
	UnknownOps     uint64 // memory events among Malformed whose operation has no known label

	UnknownKinds []Unknown // by kind, in the order of their first events

	// The absent tables that would have named the operations of UnknownOps, and the kinds of UnknownKinds; "": none.
	NoOps, NoKinds string

	Missing []Missing // tables and columns that the export does not have, sorted
}

// Missing is an optional table, or TABLE.COLUMN, that an export does not have.
type Missing struct {
	Name    string
	Effect  string // on the recording
	Omitted bool   // it would have no rows: others show that CUDA was traced
}

// magic is at the beginning of every SQLite database.
const magic = "SQLite format 3\x00"

// Is reports whether a file is an SQLite database, and so perhaps an export of Nsight Systems. Convert tells.
func Is(path string) bool {
	f, err := recording.OpenFile(path)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, len(magic))
	_, err = io.ReadFull(f, begin)
	return err == nil && bytes.Equal(begin, []byte(magic))
}

// Convert appends the events of an export to a new recording, which the caller closes. After an error the recording is
// incomplete. An error names the file, what is wrong with it, and what to do.
func Convert(ctx context.Context, path string, to *recording.Writer, o Options) (Summary, error) {
	d, err := open(ctx, path)
	if err != nil {
		return Summary{}, err
	}
	defer d.close()
	c := &converter{database: d, live: live{}}
	if err := c.convert(ctx, to, o); err != nil {
		return c.Summary, d.explain(err)
	}
	slices.SortFunc(d.missing, func(a, b Missing) int { return cmp.Compare(a.Name, b.Name) })
	c.Missing = d.missing
	return c.Summary, nil
}

// converter is one run of Convert.
type converter struct {
	Summary
	*database
	target target
	names  *names
	live   live
	out    *batches
	feeds  []*feed
}

func (c *converter) convert(ctx context.Context, to *recording.Writer, o Options) (err error) {
	if c.target, err = c.readTarget(ctx); err != nil {
		return err
	}
	c.Host, c.Schema, c.Session = cmp.Or(o.Host, c.target.host, "nsight"), c.target.schema, c.target.session
	if c.names, err = newNames(ctx, c.database); err != nil {
		return err
	}
	defer c.names.close()
	defer c.closeFeeds()
	if err := c.openFeeds(ctx, o.Kinds); err != nil {
		return err
	}
	c.out = newBatches(to, &c.target, schema.Header{
		Cluster: cmp.Or(o.Cluster, "nsight"), Host: c.Host, BootID: c.target.boot, Run: 1,
		ClockOffset: c.target.offset(),
	})
	if err := c.out.begin(o.Kinds); err != nil {
		return err
	}
	if err := c.merge(ctx); err != nil {
		return err
	}
	return c.out.end()
}

// openFeeds starts to read the tables of the wanted kinds.
func (c *converter) openFeeds(ctx context.Context, kinds []schema.Kind) error {
	for _, s := range sources {
		if len(kinds) > 0 && !slices.Contains(kinds, s.kind) {
			continue
		}
		if !c.has(s.table) {
			if len(kinds) > 0 && s.needed {
				return fmt.Errorf("it has no table %s: %s", s.table, s.remedy)
			}
			if err := c.missEvents(ctx, &s); err != nil {
				return err
			}
			continue
		}
		f, err := s.open(ctx, c)
		if err != nil {
			return fmt.Errorf("table %s: %w", s.table, err)
		}
		f.table = s.table
		c.feeds = append(c.feeds, f)
	}
	if len(c.feeds) == 0 {
		return fmt.Errorf("it has no table of CUDA events, such as %s: %s", memoryTable, remedyTrace)
	}
	return nil
}

func (c *converter) closeFeeds() {
	for _, f := range c.feeds {
		f.close()
	}
}

// merge takes the rows of all tables in the order of their times.
func (c *converter) merge(ctx context.Context) error {
	for _, f := range c.feeds {
		if err := c.advance(f); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := earliest(c.feeds)
		if next == nil {
			return nil
		}
		kind, err := next.add(next.row)
		if err != nil {
			return fmt.Errorf("table %s: %w", next.table, err)
		}
		if n == 0 {
			c.First = next.at
		}
		c.Last = next.at
		c.Events[kind]++
		if err := c.out.added(kind, next.at); err != nil {
			return err
		}
		if err := c.advance(next); err != nil {
			return err
		}
	}
}

func earliest(feeds []*feed) (next *feed) {
	for _, f := range feeds {
		if !f.ended && (next == nil || f.at < next.at) {
			next = f
		}
	}
	return next
}

// advance reads the next usable row of a feed.
func (c *converter) advance(f *feed) error {
	for {
		usable, err := f.next()
		if err != nil {
			return fmt.Errorf("table %s: %w", f.table, err)
		}
		if f.ended || usable {
			return nil
		}
		if f.impossible {
			c.ImpossibleSize++
		} else {
			c.Malformed++
		}
	}
}
