package schema

import (
	"encoding/binary"
	"fmt"
	"io"
)

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
