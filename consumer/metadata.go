package consumer

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readMetadata reads into meta what the runtime needs of what JetStream says of a message in its reply subject. The library's Metadata
// does too, but with memory for each message, which is a fifth of what a small one costs; a form that is unknown here is left to it.
func readMetadata(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
	if parseReply(m.Reply(), meta) {
		return nil
	}
	full, err := m.Metadata()
	if err != nil {
		return err
	}
	*meta = *full
	return nil
}

// parseReply reads $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>; with a
// domain there may be more behind. It leaves the domain out.
func parseReply(reply string, meta *jetstream.MsgMetadata) bool {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	points := strings.Count(rest, ".")
	if !ok || points != 6 && points < 8 {
		return false
	}
	if points > 6 {
		_, rest, _ = strings.Cut(rest, ".")
		_, rest, _ = strings.Cut(rest, ".")
	}
	*meta = jetstream.MsgMetadata{}
	meta.Stream, rest, _ = strings.Cut(rest, ".")
	meta.Consumer, rest, _ = strings.Cut(rest, ".")
	var stored uint64
	for _, to := range [...]*uint64{&meta.NumDelivered, &meta.Sequence.Stream, &meta.Sequence.Consumer, &stored, &meta.NumPending} {
		if *to, rest, ok = cutNumber(rest); !ok {
			return false
		}
	}
	meta.Timestamp = time.Unix(0, int64(stored))
	return true
}

// cutNumber reads the number before the first point, or the end.
func cutNumber(s string) (n uint64, rest string, ok bool) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			return n, s[i+1:], i > 0
		case c < '0' || c > '9':
			return 0, "", false
		default:
			n = n*10 + uint64(c-'0')
		}
	}
	return n, "", s != ""
}
