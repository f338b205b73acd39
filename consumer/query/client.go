package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/gputap/gputap/schema"
)

const (
	// settle is how long a Client listens after the last shard has answered: another instance may have a higher epoch.
	settle         = 20 * time.Millisecond
	maxAnswerBytes = 512 << 20
)

// Client asks the consumers of a fleet.
type Client struct{ nc *nats.Conn }

// NewClient returns a Client that uses a connection.
func NewClient(nc *nats.Conn) *Client { return &Client{nc} }

// ErrNoTopology means that NATS has no shards, or that the user may not read which there are.
var ErrNoTopology = errors.New("NATS has no gputap topology; run gputap stream init")

// ErrDisconnected means that the connection to NATS is lost, and the library tries to connect again.
var ErrDisconnected = errors.New("the connection to NATS is lost: start the server again, or check the network")

// Topology reads which shards there are, and when that was stored. It makes one direct get as a plain request, because
// the JetStream client would need more permissions.
func (c *Client) Topology(ctx context.Context) (t schema.Topology, stored time.Time, err error) {
	subject := jetstream.DefaultAPIPrefix + "DIRECT.GET." + schema.BucketStream(schema.MetaBucket) + "." +
		schema.KeySubject(schema.MetaBucket, schema.TopologyKey)
	m, err := c.nc.RequestWithContext(ctx, subject, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return t, stored, ErrNoTopology
	case errors.Is(err, nats.ErrReconnectBufExceeded): // how the library says so when it buffers nothing
		return t, stored, ErrDisconnected
	case err != nil:
		return t, stored, fmt.Errorf("read the topology: %w", err)
	case m.Header.Get("Status") != "" || m.Header.Get("KV-Operation") != "":
		return t, stored, ErrNoTopology
	}
	if t, err = schema.ParseTopology(m.Data); err != nil {
		return t, stored, fmt.Errorf("read the topology: %w", err)
	}
	stored, _ = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp")) // zero: unknown
	return t, stored, nil
}

// Answer is the replies of the shards of one fold.
type Answer struct {
	Fold    string
	Replies []Reply   // by shard
	Missing []Missing // by shard
}

// Total returns the rows that the question selects in the shards that replied, before its limit.
func (a *Answer) Total() (n int) {
	for i := range a.Replies {
		n += a.Replies[i].Total
	}
	return n
}

// Unowned reports whether no instance owned any shard that did not reply.
func (a *Answer) Unowned() bool {
	return !slices.ContainsFunc(a.Missing, func(m Missing) bool { return m.Reason != reasonNobody })
}

// Reply is the complete answer of one shard. Its Page is that of the last message.
type Reply struct {
	Page
	bodies [][]byte
	broken bool // a message of it was lost, or the owner gave up
}

// Missing is a shard without a complete answer.
type Missing struct {
	Shard  int
	Reason string
}

const (
	reasonSilent  = "no answer in time"
	reasonNobody  = "no instance owns it"
	reasonPartial = "the answer is incomplete"
)

// Ask asks shards of a fold, and gathers until every shard has answered or ctx ends. The end of ctx is not an error:
// the shards without an answer are missing.
func (c *Client) Ask(ctx context.Context, fold string, shards []int, q Question) (*Answer, error) {
	data, err := json.Marshal(&q)
	if err != nil {
		return nil, fmt.Errorf("encode the question: %w", err)
	}
	inbox := c.nc.NewInbox()
	g := &gathering{shards: map[int]*gathered{}, messages: make(chan *nats.Msg)}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	sub, err := c.nc.Subscribe(inbox+".*", func(m *nats.Msg) {
		select {
		case g.messages <- m:
		case <-asking.Done():
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to the replies: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, maxAnswerBytes); err != nil {
		return nil, fmt.Errorf("subscribe to the replies: %w", err)
	}
	for _, shard := range shards {
		g.shards[shard] = &gathered{reason: reasonSilent}
		err := c.nc.PublishRequest(schema.QuestionSubject(fold, shard), inbox+"."+strconv.Itoa(shard), data)
		if err != nil {
			return nil, fmt.Errorf("ask shard %d of %s: %w", shard, fold, err)
		}
	}
	if err := g.gather(ctx); err != nil {
		return nil, fmt.Errorf("ask %s: %w", fold, err)
	}
	return g.answer(fold), nil
}

// gathering collects messages until every shard is done.
type gathering struct {
	messages chan *nats.Msg
	shards   map[int]*gathered
	bytes    int
}

// gathered is the replies of one shard so far.
type gathered struct {
	replies []*Reply // one for each owner that has replied
	reason  string   // why there is no complete reply
	done    bool     // an owner has replied completely, or nobody will
}

// gather returns when every shard is done and no further owner has announced an answer, or when ctx ends.
func (g *gathering) gather(ctx context.Context) error {
	for {
		var settled <-chan time.Time
		if g.done() {
			settled = time.After(settle)
		}
		select {
		case m := <-g.messages:
			g.take(m)
		case <-settled:
			return nil
		case <-ctx.Done():
			return nil
		}
		if g.bytes > maxAnswerBytes {
			return fmt.Errorf("the answer has more than %d bytes: use a filter or a limit", maxAnswerBytes)
		}
	}
}

// done reports whether every shard is done and no owner is in the middle of its reply.
func (g *gathering) done() bool {
	for _, s := range g.shards {
		if !s.done || slices.ContainsFunc(s.replies, func(r *Reply) bool { return !r.Last && !r.broken }) {
			return false
		}
	}
	return true
}

// take adds one message. Its reply subject ends with the shard.
func (g *gathering) take(m *nats.Msg) {
	shard, err := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	s := g.shards[shard]
	if err != nil || s == nil {
		return
	}
	g.bytes += len(m.Data)
	if m.Header.Get("Status") == "503" {
		s.reason, s.done = reasonNobody, true
		return
	}
	s.add(m)
}

func (s *gathered) add(m *nats.Msg) {
	var p Page
	failure := m.Header.Get(micro.ErrorHeader)
	if err := json.Unmarshal([]byte(m.Header.Get(pageHeader)), &p); err != nil {
		s.reason, s.done = cmp.Or(failure, reasonPartial), true
		return
	}
	i := slices.IndexFunc(s.replies, func(r *Reply) bool { return r.Epoch == p.Epoch && r.Instance == p.Instance })
	if i < 0 {
		i = len(s.replies)
		s.replies = append(s.replies, &Reply{Page: Page{Epoch: p.Epoch, Instance: p.Instance}})
	}
	r := s.replies[i]
	switch {
	case r.broken:
	case failure != "":
		r.broken, s.reason, s.done = true, failure, true
	case p.Number != r.Number+1: // a page was lost
		r.broken, s.reason, s.done = true, reasonPartial, true
	default:
		r.Page, r.bodies = p, append(r.bodies, m.Data)
		s.done = s.done || p.Last
	}
}

// answer chooses, for each shard, the complete reply of the highest epoch.
func (g *gathering) answer(fold string) *Answer {
	a := &Answer{Fold: fold}
	for shard, s := range g.shards {
		var best *Reply
		for _, r := range s.replies {
			if r.Last && (best == nil || r.Epoch > best.Epoch) {
				best = r
			}
		}
		if best != nil {
			a.Replies = append(a.Replies, *best)
		} else {
			a.Missing = append(a.Missing, Missing{shard, s.reason})
		}
	}
	slices.SortFunc(a.Replies, func(a, b Reply) int { return cmp.Compare(a.Shard, b.Shard) })
	slices.SortFunc(a.Missing, func(a, b Missing) int { return cmp.Compare(a.Shard, b.Shard) })
	return a
}
