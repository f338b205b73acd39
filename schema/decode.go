package schema

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Limits of a message. A producer stays far below them; Decode rejects a message above one.
const (
	MaxMessageBytes = 8 << 20
	MaxEvents       = 1 << 17
	maxRows         = 1 << 16 // of one dictionary
	maxListed       = 1 << 17 // entries of all lists in rows; a graph's node is two
	maxString       = 4096    // bytes; Encode truncates longer strings
	maxDepth        = 8       // of values under unknown keys
	maxSeen         = 4 << 20 // bytes of strings that a Decoder caches
)

// ErrMalformed is wrapped by every error of Decode.
var ErrMalformed = errors.New("malformed batch")

// Decoder decodes messages. It caches strings, because batches repeat names: equal strings share their bytes. One
// goroutine uses a Decoder at a time.
type Decoder struct {
	data      []byte
	reader    bytes.Reader
	dec       *msgpack.Decoder
	row       row // the row at hand; a local variable would escape to the heap for every row
	listed    int // of maxListed
	seen      map[string]string
	seenBytes int
}

// NewDecoder returns a Decoder.
func NewDecoder() *Decoder {
	d := &Decoder{seen: map[string]string{}}
	d.dec = msgpack.NewDecoder(&d.reader)
	return d
}

// Decode reads one message into b. The columns of b borrow data; its strings are copies. The bytes of the message bound
// what Decode allocates, whatever counts they claim. Decode ignores unknown keys, columns, words and kinds, reads
// absent
// ones as zero, and takes the last of equal keys. An error wraps ErrMalformed and leaves b unusable.
func (d *Decoder) Decode(data []byte, b *Batch) error {
	if len(data) > MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(data), MaxMessageBytes)
	}
	d.data, d.listed = data, 0
	d.reader.Reset(data)
	d.dec.ResetReader(&d.reader)
	b.clear()
	n, err := d.dec.DecodeMapLen()
	if err != nil || n < 0 || n > d.reader.Len()/2 {
		return fmt.Errorf("%w: the envelope is not a map", ErrMalformed)
	}
	for range n {
		key, err := d.word()
		if err != nil {
			return fmt.Errorf("%w: envelope key: %w", ErrMalformed, err)
		}
		if err := d.entry(key, b); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrMalformed, key, err)
		}
	}
	if d.reader.Len() > 0 {
		return fmt.Errorf("%w: %d bytes after the envelope", ErrMalformed, d.reader.Len())
	}
	return b.validate()
}

// clear keeps the memory of the dictionaries but not their strings.
func (b *Batch) clear() {
	clear(b.Processes)
	clear(b.Threads)
	clear(b.GPUs)
	clear(b.Calls)
	clear(b.Funcs)
	clear(b.Graphs)
	clear(b.Libraries)
	clear(b.Coverage)
	*b = Batch{
		Processes: b.Processes[:0], Threads: b.Threads[:0], GPUs: b.GPUs[:0], Calls: b.Calls[:0], Funcs: b.Funcs[:0],
		Graphs: b.Graphs[:0], Contexts: b.Contexts[:0], Shapes: b.Shapes[:0], CUDAStreams: b.CUDAStreams[:0],
		Libraries: b.Libraries[:0], Coverage: b.Coverage[:0], nodes: b.nodes[:0],
	}
}

// entry reads the value of a key of the envelope.
func (d *Decoder) entry(key []byte, b *Batch) error {
	switch string(key) {
	case keyVersion:
		return number(d, &b.Minor)
	case keyKind:
		word, err := d.word()
		b.Kind = ParseKind(string(word))
		return err
	case keyCluster:
		return d.text(&b.Cluster)
	case keyHost:
		return d.text(&b.Host)
	case keyBoot:
		return d.text(&b.BootID)
	case keyRun:
		return number(d, &b.Run)
	case keySeq:
		return number(d, &b.Seq)
	case keyEvents:
		v, err := d.uint()
		if v > MaxEvents {
			return fmt.Errorf("%d events, at most %d", v, MaxEvents)
		}
		b.Events = int(v)
		return err
	case keyOffset:
		at := d.at()
		v, err := d.dec.DecodeInt64()
		if v < 0 && d.data[at] == msgpcode.Uint64 {
			return errRange
		}
		b.ClockOffset = v
		return err
	case keyFirst:
		return number(d, &b.First)
	case keyLast:
		return number(d, &b.Last)
	case keyLost:
		return d.lost(b)
	case keyColumns:
		return d.columns(b)
	case keyLinux:
		return d.text(&b.Linux)
	case keyProducer:
		return d.text(&b.Producer)
	}
	return d.dictionary(key, b)
}

func (d *Decoder) dictionary(key []byte, b *Batch) (err error) {
	switch string(key) {
	case keyProcesses:
		b.Processes, err = rows(d, b.Processes, func(r *row, p *Process) {
			field(r, &p.PID)
			field(r, &p.Start)
			field(r, &p.UID)
			r.text(&p.Comm)
			r.text(&p.Exe)
			r.text(&p.Container)
			r.flag(&p.Late)
			r.text(&p.User)
			field(r, &p.NSPID)
			r.text(&p.Cgroup)
			r.text(&p.Pod)
			r.text(&p.Unit)
		})
	case keyThreads:
		b.Threads, err = rows(d, b.Threads, func(r *row, t *Thread) {
			field(r, &t.Process)
			field(r, &t.TID)
			r.text(&t.Comm)
		})
	case keyGPUs:
		b.GPUs, err = rows(d, b.GPUs, func(r *row, g *GPU) {
			r.text(&g.UUID)
			field(r, &g.Ordinal)
			r.flag(&g.Inferred)
			r.text(&g.Name)
			r.text(&g.Bus)
		})
	case keyCalls:
		b.Calls, err = rows(d, b.Calls, func(r *row, c *CallRef) {
			r.text(&c.Symbol)
			c.Op = Op(r.word(opWords[:]))
			c.Class = MemClass(r.word(classWords[:]))
			c.Direction = Direction(r.word(directionWords[:]))
		})
	case keyFuncs:
		b.Funcs, err = rows(d, b.Funcs, func(r *row, f *Func) {
			r.text(&f.Name)
			field(r, &f.Handle)
			r.flag(&f.Read)
		})
	case keyGraphs:
		b.nodes = b.nodes[:0]
		b.Graphs, err = rows(d, b.Graphs, func(r *row, g *Graph) {
			field(r, &g.Func)
			r.flag(&g.Partial)
			g.Nodes = r.nodes(&b.nodes)
		})
	case keyContexts:
		b.Contexts, err = rows(d, b.Contexts, func(r *row, c *Context) {
			field(r, &c.Handle)
			field(r, &c.GPU)
		})
	case keyShapes:
		b.Shapes, err = rows(d, b.Shapes, func(r *row, s *LaunchShape) {
			for _, v := range []*uint32{
				&s.Call, &s.Func, &s.Grid[0], &s.Grid[1], &s.Grid[2], &s.Block[0], &s.Block[1], &s.Block[2],
				&s.SharedBytes,
			} {
				field(r, v)
			}
		})
	case keyCUDAStreams:
		b.CUDAStreams, err = d.numbers(b.CUDAStreams)
	case keyOlder:
		b.Older, err = d.numbers([]uint64{})
	case keyLibraries:
		b.Libraries, err = rows(d, b.Libraries, func(r *row, l *Library) {
			r.text(&l.Path)
			field(r, &l.Inode)
			field(r, &l.Attached)
			field(r, &l.Stepped)
			r.list(&l.Absent)
			r.list(&l.Failed)
		})
	case keyCoverage:
		b.Coverage, err = rows(d, b.Coverage, func(r *row, c *Coverage) {
			field(r, &c.Process)
			field(r, &c.Asked)
			r.list(&c.Outside)
			field(r, &c.ExportTables)
		})
	default:
		err = d.skip(0)
	}
	return err
}

func (d *Decoder) lost(b *Batch) error {
	n, err := d.dec.DecodeMapLen()
	if err != nil {
		return err
	}
	if n > d.reader.Len()/2 {
		return errTooMany
	}
	b.Lost = [NumLosses]uint64{}
	for range max(n, 0) {
		cause, err := d.word()
		if err != nil {
			return err
		}
		v, err := d.uint()
		if err != nil {
			return err
		}
		b.Lost[parseLoss(string(cause))] += v
	}
	return nil
}

func (d *Decoder) columns(b *Batch) error {
	n, err := d.dec.DecodeMapLen()
	if err != nil {
		return err
	}
	if n > d.reader.Len()/2 {
		return errTooMany
	}
	last := numColumns - 1
	for range max(n, 0) {
		key, err := d.word()
		if err != nil {
			return err
		}
		id, known := columnAfter(last, key)
		if !known {
			if err := d.skip(0); err != nil {
				return err
			}
			continue
		}
		if err := d.column(&b.columns[id]); err != nil {
			return fmt.Errorf("column %q: %w", key, err)
		}
		last = id
	}
	return nil
}

// columnAfter finds the column of a key. It begins behind the last one, because writers keep the order of Columns.
func columnAfter(last columnID, key []byte) (columnID, bool) {
	for i := range numColumns {
		if id := (last + 1 + i) % numColumns; columnKeys[id] == string(key) {
			return id, true
		}
	}
	return 0, false
}

func (d *Decoder) column(c *Column) error {
	n, err := d.length()
	if err != nil {
		return err
	}
	if n != 3 {
		return fmt.Errorf("%d fields, want base, width, data", n)
	}
	if err := number(d, &c.Base); err != nil {
		return err
	}
	if err := number(d, &c.Width); err != nil {
		return err
	}
	c.Data, err = d.raw()
	return err
}
