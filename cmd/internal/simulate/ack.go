package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// ack is JetStream's reply to one publish.
type ack struct {
	flow  int
	count uint64
	err   error // nil: the batch is stored
}

var (
	errNoStream = errors.New(
		"no stream accepts this subject: the stream has no leader, or does not exist (check with gputap stream info; " +
			"create it with gputap stream init)")
	errTooLarge = errors.New("the message is too large for the stream")
	errAnswer   = errors.New("the reply is not an ack")
)

// readAck reads a reply. Its subject names the flow and the batch from offset token on. Flow -1 is unknown.
func readAck(m *nats.Msg, token int) ack {
	flow, count, ok := strings.Cut(m.Subject[min(token, len(m.Subject)):], "-")
	a := ack{flow: -1}
	n, err := strconv.Atoi(flow)
	if !ok || err != nil {
		return a
	}
	if a.count, err = strconv.ParseUint(count, 10, 64); err != nil {
		return a
	}
	a.flow, a.err = n, answer(m)
	return a
}

// exceedsMaximum is JetStream's error code for a message above the stream's limit.
const exceedsMaximum = 10054

func answer(m *nats.Msg) error {
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return errNoStream
		}
		return errAnswer
	}
	if !bytes.Contains(m.Data, []byte(`"error"`)) {
		if !bytes.Contains(m.Data, []byte(`"stream"`)) {
			return errAnswer
		}
		return nil
	}
	var refused struct {
		Error struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &refused); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	if refused.Error.Code == exceedsMaximum {
		return errTooLarge
	}
	return fmt.Errorf("JetStream rejected the batch: %s (%d)", refused.Error.Description, refused.Error.Code)
}
