package schema

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Reader gives the batches of any source of messages: a JetStream consumer, a subscription, a recording. It is for
// programs that keep no state which must outlive them; package consumer is for those that do. One goroutine uses it.
type Reader struct {
	next    func() ([]byte, error)
	decoder *Decoder
	batch   Batch
}

// NewReader reads the messages that next gives, until its error. A message is used until the next call.
func NewReader(next func() ([]byte, error)) *Reader {
	return &Reader{next: next, decoder: NewDecoder()}
}

// Read gives the next batch, which is valid until the next call, or the error of the source, as it is. A message that is no
// batch is an ErrMalformed; those after it can be read.
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

// Recording is the source of a Reader over a file of messages, each with its length before it, 4 bytes little endian. It
// ends with io.EOF, or with io.ErrUnexpectedEOF amid a message.
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
