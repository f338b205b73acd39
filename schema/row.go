package schema

import "slices"

// row reads one row of a dictionary, field by field. A newer minor version may add fields at the end: rows skips fields
// that are left over, and a field that the row lacks stays zero. row keeps the first error.
type row struct {
	d    *Decoder
	left int
	err  error
}

// rows reads one dictionary into the memory of dst.
func rows[T any](d *Decoder, dst []T, read func(*row, *T)) ([]T, error) {
	clear(dst) // of an earlier equal key: drop its strings
	dst = dst[:0]
	n, err := d.length()
	if err != nil {
		return dst, err
	}
	if n > min(d.reader.Len(), maxRows) { // a row is at least one byte
		return dst, errTooMany
	}
	for range max(n, 0) {
		r := &d.row
		*r = row{d: d}
		if r.left, r.err = d.length(); r.err != nil {
			return dst, r.err
		}
		if r.left > d.reader.Len() {
			return dst, errTooMany
		}
		var zero T
		dst = append(dst, zero)
		read(r, &dst[len(dst)-1])
		for ; r.left > 0 && r.err == nil; r.left-- {
			r.err = d.skip(0)
		}
		if r.err != nil {
			return dst, r.err
		}
	}
	return dst, nil
}

func (r *row) next() bool {
	r.left--
	return r.left >= 0 && r.err == nil
}

func (r *row) text(s *string) {
	if r.next() {
		*s, r.err = r.d.str()
	}
}

// word reads a word and returns its index, 0 if it is unknown.
func (r *row) word(words []string) int {
	if !r.next() {
		return 0
	}
	raw, err := r.d.raw()
	r.err = err
	for i, w := range words {
		if w == string(raw) {
			return i
		}
	}
	return 0
}

// entries returns the length of the list at hand. It is at most the bytes that are left, and all lists of a message
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
	n = max(n, 0)
	if r.d.listed += n; n > r.d.reader.Len() || r.d.listed > maxListed {
		r.err = errTooMany
		return 0
	}
	return n
}

func (r *row) list(dst *[]string) {
	for range r.entries() {
		s, err := r.d.str()
		if err != nil {
			r.err = err
			return
		}
		*dst = append(*dst, s)
	}
}

// nodes reads pairs of function and count from one flat list. All graphs of a batch share the memory of their nodes.
func (r *row) nodes(shared *[]Node) []Node {
	first, n := len(*shared), r.entries()
	if n%2 != 0 {
		r.err = errHalfNode
		return nil
	}
	for range n / 2 {
		var node Node
		if r.err = number(r.d, &node.Func); r.err != nil {
			return nil
		}
		if r.err = number(r.d, &node.Count); r.err != nil {
			return nil
		}
		*shared = append(*shared, node)
	}
	return slices.Clip((*shared)[first:])
}

func (r *row) flag(to *bool) {
	var v uint8
	field(r, &v)
	*to = v != 0
}

func field[T unsigned](r *row, to *T) {
	if r.next() {
		r.err = number(r.d, to)
	}
}
