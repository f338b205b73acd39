package answer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

const (
	historyBatch = 1000    // messages of one request
	maxHistory   = 100_000 // alerts of one answer; one takes about a kilobyte
)

// AlertHistory lists the alerts that NATS stored since a time: those that fired or cleared. An alert that did both is
// one item, in its last state. The newest come first. Begins is the time since when every alert is still stored.
func (f *Fleet) AlertHistory(ctx context.Context, q query.Question, since time.Time) (*List[alert.Alert], error) {
	js, err := jetstream.New(f.nc)
	if err != nil {
		return nil, fmt.Errorf("read the alerts: %w", err)
	}
	stream, err := js.Stream(ctx, schema.OutStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("read the alerts: NATS has no stream %s; run gputap stream init", schema.OutStream)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of the stream %s: %w", schema.OutStream, err)
	}
	h := history{nc: f.nc, filter: &q.Filter, since: since, alerts: map[string]alert.Alert{}}
	if err := h.read(ctx); err != nil {
		return nil, fmt.Errorf("read the stream %s: %w", schema.OutStream, err)
	}
	begins := completeSince(stream.CachedInfo())
	list := &List[alert.Alert]{Time: time.Now().UTC(), Reach: Reach{Missing: []int{}, NotRunning: []string{}},
		Begins: &begins, Items: make([]alert.Alert, 0, len(h.alerts)), Total: len(h.alerts)}
	for _, a := range h.alerts {
		list.Items = append(list.Items, a)
	}
	slices.SortFunc(list.Items, func(a, b alert.Alert) int { return b.Compare(&a) })
	if begins.After(since) {
		list.remarks = append(list.remarks, fmt.Sprintf("the alerts stream begins at %s: NATS has no older alerts",
			begins.Format("2006-01-02 15:04:05Z")))
	}
	if h.malformed > 0 {
		list.remarks = append(list.remarks, fmt.Sprintf("%d messages of %s were left out: they are not alerts",
			h.malformed,
			schema.OutStream))
	}
	return list, nil
}

// completeSince returns the time since when no message of a stream was removed. A stream that is far from full has
// removed messages by their age alone: messages leave in the order in which they came.
func completeSince(i *jetstream.StreamInfo) time.Time {
	since := i.Created
	switch {
	case i.State.FirstSeq <= 1: // nothing was removed
	case i.Config.MaxBytes > 0 && int64(i.State.Bytes) > i.Config.MaxBytes/2:
		since = i.State.FirstTime
	case i.Config.MaxAge > 0:
		if oldest := i.TimeStamp.Add(-i.Config.MaxAge); oldest.After(since) {
			since = oldest
		}
	}
	return since.UTC()
}

// history reads the stored alerts that a filter selects.
type history struct {
	nc        *nats.Conn
	filter    *query.Filter
	since     time.Time
	alerts    map[string]alert.Alert // by id
	malformed int
}

// read gets the messages in batches. A direct get needs no JetStream consumer, and so fewer permissions.
func (h *history) read(ctx context.Context) error {
	inbox := h.nc.NewInbox()
	replies, err := h.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }() // fails only when the connection is closed
	request := map[string]any{"start_time": h.since.UTC(), "next_by_subj": h.subject(), "batch": historyBatch}
	for {
		data, err := json.Marshal(request)
		if err != nil {
			return err
		}
		if err := h.nc.PublishRequest("$JS.API.DIRECT.GET."+schema.OutStream, inbox, data); err != nil {
			return err
		}
		last, pending, err := h.batch(ctx, replies)
		if err != nil || !pending {
			return err
		}
		delete(request, "start_time")
		request["seq"] = last + 1
	}
}

// subject selects as much as a subject can.
func (h *history) subject() string {
	return "gputap.v1.out.alert.*." + h.filter.ClusterToken() + "." + h.filter.HostToken()
}

// batch reads the replies to one request. last is the sequence of the last message; pending means that there are more.
func (h *history) batch(ctx context.Context, replies *nats.Subscription) (last uint64, pending bool, err error) {
	for {
		m, err := replies.NextMsgWithContext(ctx)
		if err != nil {
			return last, false, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204": // the end of the batch
			n, err := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			return last, n > 0 && last > 0, err
		case "404":
			return last, false, nil
		case "503":
			return last, false, errors.New("no replica of the stream answers; try again")
		default:
			return last, false, fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
		}
		if last, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
			return last, false, err
		}
		if err := h.add(m.Data); err != nil {
			return last, false, err
		}
	}
}

func (h *history) add(data []byte) error {
	var a alert.Alert
	if json.Unmarshal(data, &a) != nil || a.ID == "" {
		h.malformed++
		return nil
	}
	if !selects(h.filter, &a) {
		return nil
	}
	if before, known := h.alerts[a.ID]; known && before.State == alert.Cleared {
		return nil // a fold that was rebuilt has raised it again
	} else if !known && len(h.alerts) == maxHistory {
		return fmt.Errorf("there are more than %d alerts; ask for a shorter time or for fewer hosts", maxHistory)
	}
	h.alerts[a.ID] = a
	return nil
}
