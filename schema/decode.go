package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

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
	row       row     // the row at hand; a local variable would escape to the heap for every row
	nodes     *[]Node // of the batch
	listed    int     // of maxListed
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
// absent ones as zero, and takes the last of equal keys. An error wraps ErrMalformed and leaves b unusable.
func (d *Decoder) Decode(data []byte, b *Batch) error {
	if len(data) > MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(data), MaxMessageBytes)
	}
	d.data, d.listed = data, 0
	d.reader.Reset(data)
	d.dec.ResetReader(&d.reader)
	b.clear()
	n, err := d.mapLength()
	if err != nil || n < 0 {
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
	*b = Batch{
		Processes: emptied(b.Processes), Threads: emptied(b.Threads), GPUs: emptied(b.GPUs), Calls: emptied(b.Calls),
		Funcs: emptied(b.Funcs), Graphs: emptied(b.Graphs), Contexts: b.Contexts[:0], Shapes: b.Shapes[:0],
		CUDAStreams: b.CUDAStreams[:0], Libraries: emptied(b.Libraries), Coverage: emptied(b.Coverage),
		Ends:   b.Ends[:0],
		Stacks: emptied(b.Stacks),
		nodes:  b.nodes[:0],
	}
}

func emptied[T any](list []T) []T {
	clear(list)
	return list[:0]
}

// entry reads the value of a key of the envelope.
func (d *Decoder) entry(key []byte, b *Batch) error {
	switch string(key) {
	case keyVersion:
		return readNumber(d, &b.Minor)
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
		return readNumber(d, &b.Run)
	case keySeq:
		return readNumber(d, &b.Seq)
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
		return readNumber(d, &b.First)
	case keyLast:
		return readNumber(d, &b.Last)
	case keyLost:
		return d.lost(b)
	case keyColumns:
		return d.columns(b)
	case keyLinux:
		return d.text(&b.Linux)
	case keyProducer:
		return d.text(&b.Producer)
	case keyOrigin:
		return d.text(&b.Origin)
	case keyOlder:
		b.Older = []uint64{}
		return d.numbers(&b.Older)
	}
	return d.dictionary(key, b)
}

func (d *Decoder) dictionary(key []byte, b *Batch) error {
	switch string(key) {
	case keyProcesses:
		return readRows(d, &b.Processes, (*row).process)
	case keyThreads:
		return readRows(d, &b.Threads, (*row).thread)
	case keyGPUs:
		return readRows(d, &b.GPUs, (*row).gpu)
	case keyCalls:
		return readRows(d, &b.Calls, (*row).call)
	case keyFuncs:
		return readRows(d, &b.Funcs, (*row).function)
	case keyShapes:
		return readRows(d, &b.Shapes, (*row).shape)
	case keyGraphs:
		b.nodes = b.nodes[:0]
		d.nodes = &b.nodes
		return readRows(d, &b.Graphs, (*row).graph)
	case keyContexts:
		return readRows(d, &b.Contexts, (*row).context)
	case keyCUDAStreams:
		return d.numbers(&b.CUDAStreams)
	case keyLibraries:
		return readRows(d, &b.Libraries, (*row).library)
	case keyCoverage:
		return readRows(d, &b.Coverage, (*row).coverage)
	case keyEnds:
		return readRows(d, &b.Ends, (*row).end)
	case keyStacks:
		return readRows(d, &b.Stacks, (*row).stack)
	}
	return d.skip(0)
}

func (d *Decoder) lost(b *Batch) error {
	n, err := d.mapLength()
	if err != nil {
		return err
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
	n, err := d.mapLength()
	if err != nil {
		return err
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
	if err := readNumber(d, &c.Base); err != nil {
		return err
	}
	if err := readNumber(d, &c.Width); err != nil {
		return err
	}
	c.Data, err = d.raw()
	return err
}

// validate checks what folds rely on: column lengths, indices, and numbers of 32 bits.
func (b *Batch) validate() error {
	for id := range b.columns {
		c := &b.columns[id]
		switch c.Width {
		case 0, 1, 2, 4, 8:
		default:
			return fmt.Errorf("%w: column %q: width %d", ErrMalformed, columnKeys[id], c.Width)
		}
		if want := int(c.Width) * b.Events; len(c.Data) != want {
			return fmt.Errorf("%w: column %q: %d bytes, want %d", ErrMalformed, columnKeys[id], len(c.Data), want)
		}
	}
	for i := range b.Threads {
		if int(b.Threads[i].Process) >= len(b.Processes) {
			return fmt.Errorf("%w: thread %d: process index out of range", ErrMalformed, i)
		}
	}
	for i := range b.Shapes {
		s := &b.Shapes[i]
		if int(s.Call) >= len(b.Calls) || int(s.Func) >= len(b.Funcs) {
			return fmt.Errorf("%w: shape %d: call or function index out of range", ErrMalformed, i)
		}
	}
	for i := range b.Contexts {
		if int(b.Contexts[i].GPU) > len(b.GPUs) {
			return fmt.Errorf("%w: context %d: GPU index out of range", ErrMalformed, i)
		}
	}
	for i := range b.Graphs {
		g := &b.Graphs[i]
		if int(g.Func) >= len(b.Funcs) {
			return fmt.Errorf("%w: graph %d: function index out of range", ErrMalformed, i)
		}
		for _, n := range g.Nodes {
			if int(n.Func) >= len(b.Funcs) {
				return fmt.Errorf("%w: graph %d: function index of a node out of range", ErrMalformed, i)
			}
		}
	}
	for i := range b.Coverage {
		if int(b.Coverage[i].Process) >= len(b.Processes) {
			return fmt.Errorf("%w: coverage %d: process index out of range", ErrMalformed, i)
		}
	}
	if b.Events == 0 || b.Kind == KindNone {
		return nil
	}
	for _, id := range kindColumns[b.Kind] {
		if c := &Columns[id]; c.Bits == 32 && !b.columns[id].below(b.limit(c), b.Events) {
			return fmt.Errorf("%w: column %q: index or number out of range", ErrMalformed, c.Key)
		}
	}
	return nil
}

// limit returns the number of valid values of a column of 32 bits.
func (b *Batch) limit(c *ColumnSpec) uint64 {
	if c.Content != ContentIndex {
		return 1 << 32
	}
	n := uint64(b.entries(c.Dictionary))
	if c.Optional {
		n++
	}
	return n
}

// Reader decodes the messages of any source: a JetStream consumer, a subscription or a recording. Use it in programs
// whose state need not outlive them, and package consumer in others. One goroutine uses a Reader at a time.
type Reader struct {
	next    func() ([]byte, error)
	decoder *Decoder
	batch   Batch
}

// NewReader returns a Reader of the messages that next returns. The Reader uses a message until it calls next again.
func NewReader(next func() ([]byte, error)) *Reader {
	return &Reader{next: next, decoder: NewDecoder()}
}

// Read returns the next batch, which is valid until the next Read. It returns an error of the source unchanged, and
// ErrMalformed for a message that is not a batch. After ErrMalformed, Read continues with the next message.
func (r *Reader) Read() (*Batch, error) {
	data, err := r.next()
	if err != nil {
		return nil, err
	}
	if err := r.decoder.Decode(data, &r.batch); err != nil {
		return nil, err
	}
	return &r.batch, nil
}

// Recording returns a source for NewReader: the messages of a file, each behind its length in 4 bytes, little endian.
// It ends with io.EOF, or with io.ErrUnexpectedEOF if the file ends within a message.
func Recording(file io.Reader) func() ([]byte, error) {
	var message []byte
	return func() ([]byte, error) {
		var length [4]byte
		if _, err := io.ReadFull(file, length[:]); err != nil {
			return nil, err
		}
		n := binary.LittleEndian.Uint32(length[:])
		if n > MaxMessageBytes {
			return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, n, MaxMessageBytes)
		}
		if cap(message) < int(n) {
			message = make([]byte, n)
		}
		message = message[:n]
		if _, err := io.ReadFull(file, message); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		return message, nil
	}
}
