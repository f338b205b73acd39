package replay

import (
	"iter"
	"slices"

	"github.com/gputap/gputap/schema/recording"
)

// inTimeOrder yields the selected messages in the order in which NATS stored them; those of a shard keep their order. A
// file has the messages of its shards in the order in which they were read, which may differ by much. It is read once
// for each shard. Those of a closed shard come before those that its hosts published later, whatever the clocks of the
// servers say. Data are valid until the next message.
func (f *File) inTimeOrder() iter.Seq2[*recording.Message, error] {
	if len(f.streams) < 2 {
		return f.inFileOrder()
	}
	return func(yield func(*recording.Message, error) bool) {
		for _, shards := range f.hosts.Groups() {
			for m, err := range f.merged(shards) {
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// merged yields the messages of some shards in the order in which NATS stored them; nil: those of all shards.
func (f *File) merged(shards []int) iter.Seq2[*recording.Message, error] {
	return func(yield func(*recording.Message, error) bool) {
		var heads []*head
		defer func() {
			for _, h := range heads {
				h.close()
			}
		}()
		for _, s := range f.streams {
			if shards != nil && !slices.Contains(shards, s.Shard) {
				continue
			}
			h, err := f.head(s.Shard)
			if err != nil {
				yield(nil, err)
				return
			}
			heads = append(heads, h)
		}
		for {
			next := earliest(heads)
			if next == nil {
				return
			}
			if !yield(next.message, next.err) || next.err != nil {
				return
			}
			next.advance()
		}
	}
}

// head is the next message of one shard.
type head struct {
	in      *recording.Reader
	next    func() (*recording.Message, error, bool)
	stop    func()
	message *recording.Message // nil at the end, and with an error
	err     error
}

// head opens the file again for one shard.
func (f *File) head(shard int) (*head, error) {
	in, err := recording.Open(f.path)
	if err != nil {
		return nil, err
	}
	h := &head{in: in}
	h.next, h.stop = iter.Pull2(f.messages(in, recording.Filter{Selection: f.selection, Shards: []int{shard}}))
	h.advance()
	return h, nil
}

func (h *head) advance() { h.message, h.err, _ = h.next() }

func (h *head) close() {
	h.stop()
	_ = h.in.Close()
}

// earliest returns the head whose message was stored first, of equal ones that of the lowest shard; nil at the end. An
// error comes before all messages.
func earliest(heads []*head) (first *head) {
	for _, h := range heads {
		switch {
		case h.err != nil:
			return h
		case h.message == nil:
		case first == nil || h.message.Stored.Before(first.message.Stored):
			first = h
		}
	}
	return first
}
