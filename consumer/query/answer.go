package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/micro"
)

const (
	maxPage    = 512 << 10 // bytes of one body
	headerRoom = 4 << 10   // of max_payload, for the headers of a page
)

// ErrUnknown means that a fold has no such rows.
var ErrUnknown = errors.New("the fold does not know these rows")

// answer takes the rows and sends them, unless the shard was lost since the question came.
func (s *Service) answer(r *reply) {
	q, err := Parse(r.request.Data())
	if err != nil {
		s.refuse(r, "failed", "400", err.Error())
		return
	}
	owned := s.opts.Shards()
	i := slices.IndexFunc(owned, func(o Shard) bool { return o.Number == r.page.Shard && o.Epoch == r.page.Epoch })
	if i < 0 {
		s.refuse(r, "moved", "410", "another instance owns the shard")
		return
	}
	taken, err := take(&owned[i], q)
	switch {
	case errors.Is(err, ErrUnknown):
		s.refuse(r, "failed", "400", err.Error())
		return
	case err != nil:
		s.refuse(r, "failed", "500", err.Error())
		return
	}
	if err := r.send(taken); err != nil {
		r.page.Last = false
		s.refuse(r, "failed", "500", err.Error())
		return
	}
	s.WithLabelValues("answered").Inc()
}

// take turns a panic of a fold into an error: a question must not end the consumer.
func take(shard *Shard, q *Question) (taken Taken, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("answer the question: %v", p)
		}
	}()
	return shard.Take(q)
}

// reply cuts the rows of an answer into messages. The first one has no rows: it announces at once that this owner
// answers.
type reply struct {
	request micro.Request
	page    Page
	size    int // of a body
	body    []byte
}

func (s *Service) reply(request micro.Request, shard int, epoch uint64) *reply {
	return &reply{
		request: request, size: max(min(maxPage, int(s.nc.MaxPayload())-headerRoom), headerRoom),
		page: Page{Fold: s.opts.Fold, Shard: shard, Epoch: epoch, Instance: s.opts.Instance},
	}
}

func (w *reply) send(taken Taken) error {
	w.page.Applied, w.page.EventTime, w.page.Total = taken.Applied, taken.EventTime, taken.Total
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // kernel names have angle brackets
	for row := range taken.Rows {
		if err := encoder.Encode(row); err != nil {
			return fmt.Errorf("encode a row: %w", err)
		}
	}
	w.page.Last = true
	return w.flush(w.body)
}

// Write sends a message as soon as the body of one is full.
func (w *reply) Write(data []byte) (int, error) {
	w.body = append(w.body, data...)
	sent := 0
	for len(w.body)-sent > w.size {
		if err := w.flush(w.body[sent : sent+w.size]); err != nil {
			return 0, err
		}
		sent += w.size
	}
	if sent > 0 {
		w.body = append(w.body[:0], w.body[sent:]...)
	}
	return len(data), nil
}

func (w *reply) flush(body []byte) error {
	header, err := w.header()
	if err == nil {
		err = w.request.Respond(body, micro.WithHeaders(header))
	}
	if err != nil {
		return fmt.Errorf("send page %d: %w", w.page.Number, err)
	}
	return nil
}

// fail ends the answer with a reason.
func (w *reply) fail(code, reason string) error {
	header, err := w.header()
	if err == nil {
		err = w.request.Error(code, reason, nil, micro.WithHeaders(header))
	}
	if err != nil {
		return fmt.Errorf("send the reason %q: %w", reason, err)
	}
	return nil
}

func (w *reply) header() (micro.Headers, error) {
	w.page.Number++
	page, err := json.Marshal(&w.page)
	return micro.Headers{pageHeader: {string(page)}}, err
}
