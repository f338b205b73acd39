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

// ack is JetStream's answer to one publish.
type ack struct {
	flow  int
	count uint64
	err   error // nil: the batch is stored
}

var (
	errNoStream = errors.New("nobody takes this subject: its stream has no leader now, or there is none (gputap stream info tells, gputap stream init creates it)")
	errTooLarge = errors.New("the message is too large for the stream")
	errAnswer   = errors.New("an answer that is no ack")
)

// readAck reads an answer; token is where the subject says whose it is. One that cannot be told is of flow -1.
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

// exceedsMaximum is JetStream's code for a message above its stream's own limit.
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
	return fmt.Errorf("the bus refuses: %s (%d)", refused.Error.Description, refused.Error.Code)
}
