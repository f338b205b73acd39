package schema

// row reads one array of a dictionary: fields in order, missing ones as zero, extra ones passed
// over. It keeps the first error.
type row struct {
	d    *Decoder
	left int
	err  error
}

// rows reads one dictionary into the memory of dst.
func rows[T any](d *Decoder, dst []T, read func(*row, *T)) ([]T, error) {
	dst = dst[:0]
	n, err := d.dec.DecodeArrayLen()
	if err != nil {
		return dst, err
	}
	if n > min(d.reader.Len(), maxRows) { // a row is at least one byte
		return dst, errTooMany
	}
	for range max(n, 0) {
		r := &d.row
		*r = row{d: d}
		if r.left, r.err = d.dec.DecodeArrayLen(); r.err != nil {
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

// word reads a word and gives its index, 0 when it is not known.
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

func (r *row) list(dst *[]string) {
	if !r.next() {
		return
	}
	n, err := r.d.dec.DecodeArrayLen()
	if err != nil || n > r.d.reader.Len() {
		r.err = errTooMany
		return
	}
	for range max(n, 0) {
		s, err := r.d.str()
		if err != nil {
			r.err = err
			return
		}
		*dst = append(*dst, s)
	}
}

func field[T unsigned](r *row, to *T) {
	if r.next() {
		r.err = number(r.d, to)
	}
}
