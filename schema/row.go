package schema

import (
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// row writes or reads one row of a dictionary. The methods that take a row's type list its fields, once for both
// directions. A newer minor version may add fields at the end: readRows skips fields that are left over, and a field
// that the row lacks stays zero. row keeps the first error of reading.
type row struct {
	enc  *msgpack.Encoder // nil: read from d
	d    *Decoder
	left int // fields to read
	err  error
}

func (r *row) process(p *Process) {
	number(r, &p.PID)
	number(r, &p.Start)
	number(r, &p.UID)
	r.text(&p.Comm)
	r.text(&p.Exe)
	r.text(&p.Container)
	r.flag(&p.Late)
	r.text(&p.User)
	number(r, &p.NSPID)
	r.text(&p.Cgroup)
	r.text(&p.Pod)
	r.text(&p.Unit)
	r.text(&p.Job)
	number(r, &p.Rank)
	number(r, &p.Ranks)
}

func (r *row) thread(t *Thread) {
	number(r, &t.Process)
	number(r, &t.TID)
	r.text(&t.Comm)
}

func (r *row) gpu(g *GPU) {
	r.text(&g.UUID)
	number(r, &g.Ordinal)
	r.flag(&g.Inferred)
	r.text(&g.Name)
	r.text(&g.Bus)
	number(r, &g.Bytes)
}

func (r *row) call(c *CallRef) {
	r.text(&c.Symbol)
	wordOf(r, &c.Op, opWords[:])
	wordOf(r, &c.Class, classWords[:])
	wordOf(r, &c.Direction, directionWords[:])
}

func (r *row) function(f *Func) {
	r.text(&f.Name)
	number(r, &f.Handle)
	r.flag(&f.Read)
}

func (r *row) shape(s *LaunchShape) {
	number(r, &s.Call)
	number(r, &s.Func)
	for i := range s.Grid {
		number(r, &s.Grid[i])
	}
	for i := range s.Block {
		number(r, &s.Block[i])
	}
	number(r, &s.SharedBytes)
}

func (r *row) graph(g *Graph) {
	number(r, &g.Func)
	r.flag(&g.Partial)
	r.nodes(&g.Nodes)
}

func (r *row) context(c *Context) {
	number(r, &c.Handle)
	number(r, &c.GPU)
}

func (r *row) library(l *Library) {
	r.text(&l.Path)
	number(r, &l.Inode)
	number(r, &l.Attached)
	number(r, &l.Stepped)
	r.list(&l.Absent)
	r.list(&l.Failed)
}

func (r *row) coverage(c *Coverage) {
	number(r, &c.Process)
	number(r, &c.Asked)
	r.list(&c.Outside)
	number(r, &c.ExportTables)
}

func (r *row) stack(s *Stack) {
	r.list(&s.Frames)
	r.text(&s.Name)
}

func (r *row) end(e *End) {
	wordOf(r, &e.Kind, kindWords[:])
	number(r, &e.Seq)
	number(r, &e.Through)
}

// writeRows writes a dictionary, unless it is empty.
func writeRows[T any](w *writer, d Dictionary, values []T, fields func(*row, *T)) {
	if len(values) == 0 {
		return
	}
	w.key(Dictionaries[d].Key)
	_ = w.enc.EncodeArrayLen(len(values))
	w.row.enc = w.enc
	for i := range values {
		_ = w.enc.EncodeArrayLen(len(Dictionaries[d].Fields))
		fields(&w.row, &values[i])
	}
}

// readRows reads a dictionary into the memory of dst.
func readRows[T any](d *Decoder, dst *[]T, fields func(*row, *T)) error {
	*dst = emptied(*dst) // an earlier equal key may have filled it
	n, err := d.length()
	if err != nil {
		return err
	}
	if n > maxRows {
		return errTooMany
	}
	for range n {
		r := &d.row
		*r = row{d: d}
		if r.left, r.err = d.length(); r.err != nil {
			return r.err
		}
		var zero T
		*dst = append(*dst, zero)
		fields(r, &(*dst)[len(*dst)-1])
		for ; r.left > 0 && r.err == nil; r.left-- {
			r.err = d.skip(0)
		}
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// next reports whether the row has another field to read.
func (r *row) next() bool {
	r.left--
	return r.left >= 0 && r.err == nil
}

func number[T unsigned](r *row, v *T) {
	if r.enc != nil {
		_ = r.enc.EncodeUint(uint64(*v))
	} else if r.next() {
		r.err = readNumber(r.d, v)
	}
}

func (r *row) flag(v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	number(r, &n)
	*v = n != 0
}

func (r *row) text(s *string) {
	if r.enc != nil {
		writeText(r.enc, *s)
	} else if r.next() {
		*s, r.err = r.d.str()
	}
}

// wordOf writes or reads a number as a word. An unknown word is 0.
func wordOf[T ~uint8](r *row, v *T, words []string) {
	if r.enc != nil {
		_ = r.enc.EncodeString(word(words, int(*v)))
	} else if r.next() {
		var raw []byte
		raw, r.err = r.d.raw()
		*v = T(wordIndex(words, string(raw)))
	}
}

func (r *row) list(v *[]string) {
	if r.enc != nil {
		_ = r.enc.EncodeArrayLen(len(*v))
		for _, s := range *v {
			writeText(r.enc, s)
		}
		return
	}
	for range r.entries() {
		s, err := r.d.str()
		if err != nil {
			r.err = err
			return
		}
		*v = append(*v, s)
	}
}

// nodes are pairs of function and count in one flat list. All graphs of a decoded batch share the memory of their
// nodes.
func (r *row) nodes(v *[]Node) {
	if r.enc != nil {
		_ = r.enc.EncodeArrayLen(2 * len(*v))
		for _, n := range *v {
			_ = r.enc.EncodeUint(uint64(n.Func))
			_ = r.enc.EncodeUint(uint64(n.Count))
		}
		return
	}
	shared, n := r.d.nodes, r.entries()
	if n%2 != 0 {
		r.err = errHalfNode
		return
	}
	first := len(*shared)
	for range n / 2 {
		var node Node
		if r.err = readNumber(r.d, &node.Func); r.err != nil {
			return
		}
		if r.err = readNumber(r.d, &node.Count); r.err != nil {
			return
		}
		*shared = append(*shared, node)
	}
	*v = slices.Clip((*shared)[first:])
}

// entries returns the length of the list to read. It is at most the bytes that are left, and all lists of a message
// together have at most maxListed entries.
func (r *row) entries() int {
	if !r.next() {
		return 0
	}
	n, err := r.d.length()
	if err != nil {
		r.err = err
		return 0
	}
	if r.d.listed += n; r.d.listed > maxListed {
		r.err = errTooMany
		return 0
	}
	return n
}
