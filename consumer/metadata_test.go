package consumer

import (
	"strings"
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

// TestParseReply compares with what the library reads in the same reply.
func TestParseReply(t *testing.T) {
	read := 0
	for _, reply := range replies {
		if checkReply(t, reply) {
			read++
		}
	}
	if read != 4 {
		t.Errorf("%d replies read here, want 4", read)
	}
}

func FuzzParseReply(f *testing.F) {
	for _, reply := range replies {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, reply string) { checkReply(t, reply) })
}

// checkReply reports whether the reply was read here, not left to the library.
func checkReply(t *testing.T, reply string) bool {
	var meta jetstream.MsgMetadata
	if !parseReply(reply, &meta) {
		return false
	}
	want, err := (&nats.Msg{Sub: &nats.Subscription{}, Reply: strings.Clone(reply)}).Metadata()
	if err != nil {
		t.Fatalf("%q: read as %+v; the library: %v", reply, meta, err)
	}
	if meta.Stream != want.Stream || meta.Consumer != want.Consumer || meta.Sequence != jetstream.SequencePair(want.Sequence) || meta.NumDelivered != want.NumDelivered ||
		meta.NumPending != want.NumPending || !meta.Timestamp.Equal(want.Timestamp) {
		t.Fatalf("%q: read as %+v; the library: %+v", reply, meta, *want)
	}
	return true
}
