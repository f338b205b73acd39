package consumer

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// readMetadata reads a message's metadata from its reply subject into meta. The library's Metadata allocates for each
// message, a fifth of the cost of a small one; it is only used for forms that parseReply does not know.
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

// parseReply reads
// $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>; with a
// domain more tokens may follow. It does not set the domain.
func parseReply(reply string, meta *jetstream.MsgMetadata) bool {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	dots := strings.Count(rest, ".")
	if !ok || dots != 6 && dots < 8 {
		return false
	}
	if dots > 6 {
		_, rest, _ = strings.Cut(rest, ".")
		_, rest, _ = strings.Cut(rest, ".")
	}
	*meta = jetstream.MsgMetadata{}
	meta.Stream, rest, _ = strings.Cut(rest, ".")
	meta.Consumer, rest, _ = strings.Cut(rest, ".")
	var stored uint64
	for _, to := range [...]*uint64{&meta.NumDelivered, &meta.Sequence.Stream, &meta.Sequence.Consumer, &stored,
		&meta.NumPending} {
		if *to, rest, ok = cutNumber(rest); !ok {
			return false
		}
	}
	meta.Timestamp = time.Unix(0, int64(stored))
	return true
}

// cutNumber reads the number before the first dot, or before the end.
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
