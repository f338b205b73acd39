package consumer

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// replies are reply subjects of every form that servers have written, and of none.
var replies = []string{
	"$JS.ACK.GPUTAP_EV_000.leak-0-abc.1.1234.567.1700000000123456789.89",
	"$JS.ACK._.acc.GPUTAP_EV_000.leak-0-abc.1.1234.567.1700000000123456789.89",
	"$JS.ACK.hub.acc.GPUTAP_EV_000.leak-0-abc.3.18446744073709551615.567.1700000000123456789.0.rAnDoM",
	"$JS.ACK.hub.acc.GPUTAP_EV_000.leak-0-abc.3.1.2.3.4.5.6.7.more",
	"$JS.ACK.acc.GPUTAP_EV_000.leak-0-abc.1.1234.567.1700000000123456789.89", // neither with nor without a domain
	"$JS.ACK.GPUTAP_EV_000.leak-0-abc.1.1234.567.1700000000123456789",
	"$JS.ACK.GPUTAP_EV_000.leak-0-abc.1.x.567.1700000000123456789.89",
	"$JS.ACK.GPUTAP_EV_000.leak-0-abc.1..567.1700000000123456789.89",
	"$JS.FC.GPUTAP_EV_000.leak-0-abc.1.1234.567.1700000000123456789.89",
	"$JS.ACK", "$JS.ACK.", "$JS.ACK........", "", ".",
}

// replied is a message with a reply subject and with the metadata that the library reads from it.
type replied struct {
	jetstream.Msg
	reply string
}

func (r replied) Reply() string { return r.reply }

func (r replied) Metadata() (*jetstream.MsgMetadata, error) {
	m, err := (&nats.Msg{Sub: &nats.Subscription{}, Reply: r.reply}).Metadata()
	if err != nil {
		return nil, err
	}
	return &jetstream.MsgMetadata{
		Sequence: jetstream.SequencePair(m.Sequence), NumDelivered: m.NumDelivered, NumPending: m.NumPending,
		Timestamp: m.Timestamp, Stream: m.Stream, Consumer: m.Consumer,
	}, nil
}

// TestReadMetadata: it reads the same as the library does.
func TestReadMetadata(t *testing.T) {
	t.Parallel()
	var meta jetstream.MsgMetadata // reused, so values of one message must not stay for the next
	parsed := 0
	for _, reply := range replies {
		compareWithLibrary(t, reply, &meta)
		if parseReply(reply, &meta) {
			parsed++
		}
	}
	if parsed != 4 {
		t.Errorf("%d replies read without the library, want 4", parsed)
	}
}

func FuzzReadMetadata(f *testing.F) {
	for _, reply := range replies {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		compareWithLibrary(t, reply, &jetstream.MsgMetadata{Domain: "stale"})
	})
}

func compareWithLibrary(t *testing.T, reply string, meta *jetstream.MsgMetadata) {
	t.Helper()
	m := replied{reply: reply}
	want, wantErr := m.Metadata()
	if err := readMetadata(m, meta); (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: %v; the library: %v", reply, err, wantErr)
	}
	if wantErr == nil && *meta != *want {
		t.Fatalf("%q: read as %+v; the library: %+v", reply, *meta, *want)
	}
}

// TestGateRefusesOtherMessages: a message without JetStream metadata does not reach the fold.
func TestGateRefusesOtherMessages(t *testing.T) {
	t.Parallel()
	g, passed := gate{consumer: "leak-0-abc"}, 0
	for _, reply := range []string{replies[0], "_INBOX.x", replies[1]} {
		g.pass(replied{reply: reply}, func(jetstream.Msg, *jetstream.MsgMetadata) { passed++ })
	}
	if passed != 2 {
		t.Errorf("%d messages passed, want 2", passed)
	}
}
