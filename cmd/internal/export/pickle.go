package export

import (
	"encoding/binary"
	"io"
)

// pickler writes Python's pickle format, protocol 2: dictionaries, lists, numbers and texts. Its operations are those
// that PyTorch's memory_viz also reads in a browser. It keeps the first error.
type pickler struct {
	out  io.Writer
	memo map[string]uint32 // texts that were written
	next uint32            // number of the memo
	buf  []byte
	err  error
}

// Operations.
const (
	pickleProto      = "\x80\x02"
	pickleEmptyDict  = '}'
	pickleEmptyList  = ']'
	pickleMark       = '('
	pickleSetItems   = 'u'
	pickleAppend     = 'a'
	pickleTuple2     = 0x86
	pickleTrue       = 0x88
	pickleFalse      = 0x89
	pickleLong1      = 0x8a
	pickleBinInt1    = 'K'
	pickleBinUnicode = 'X'
	pickleLongPut    = 'r'
	pickleLongGet    = 'j'
	pickleStop       = '.'
)

// maxMemo bounds the texts that a pickler remembers.
const maxMemo = 4096

func newPickler(out io.Writer) *pickler {
	p := &pickler{out: out, memo: map[string]uint32{}}
	p.buf = append(p.buf, pickleProto...)
	return p
}

// flush writes what is buffered.
func (p *pickler) flush() {
	if p.err == nil {
		_, p.err = p.out.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

// end ends the one value of the file.
func (p *pickler) end() error {
	p.buf = append(p.buf, pickleStop)
	p.flush()
	return p.err
}

// dict writes a dictionary: items writes its keys and values in turn.
func (p *pickler) dict(items func()) {
	p.buf = append(p.buf, pickleEmptyDict, pickleMark)
	items()
	p.buf = append(p.buf, pickleSetItems)
}

// list begins a list. item adds one to it.
func (p *pickler) list() { p.buf = append(p.buf, pickleEmptyList) }

// item adds the value that write writes to the list before it.
func (p *pickler) item(write func()) {
	write()
	p.buf = append(p.buf, pickleAppend)
	if len(p.buf) > 1<<15 {
		p.flush()
	}
}

// pair writes a tuple of two numbers.
func (p *pickler) pair(a, b uint64) {
	p.number(a)
	p.number(b)
	p.buf = append(p.buf, pickleTuple2)
}

func (p *pickler) number(n uint64) {
	if n < 1<<8 {
		p.buf = append(p.buf, pickleBinInt1, byte(n))
		return
	}
	bytes := binary.LittleEndian.AppendUint64(nil, n)
	bytes = append(bytes, 0) // the number is signed
	for len(bytes) > 1 && bytes[len(bytes)-1] == 0 && bytes[len(bytes)-2] < 0x80 {
		bytes = bytes[:len(bytes)-1]
	}
	p.buf = append(append(p.buf, pickleLong1, byte(len(bytes))), bytes...)
}

func (p *pickler) truth(b bool) {
	if b {
		p.buf = append(p.buf, pickleTrue)
	} else {
		p.buf = append(p.buf, pickleFalse)
	}
}

func (p *pickler) text(s string) {
	if n, known := p.memo[s]; known {
		p.get(n)
		return
	}
	p.buf = binary.LittleEndian.AppendUint32(append(p.buf, pickleBinUnicode), uint32(len(s)))
	p.buf = append(p.buf, s...)
	if len(p.memo) < maxMemo {
		p.memo[s] = p.put()
	}
}

// put remembers the value before it.
func (p *pickler) put() (n uint32) {
	n = p.next
	p.next++
	p.buf = binary.LittleEndian.AppendUint32(append(p.buf, pickleLongPut), n)
	return n
}

// get writes a remembered value.
func (p *pickler) get(n uint32) {
	p.buf = binary.LittleEndian.AppendUint32(append(p.buf, pickleLongGet), n)
}
