package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/schema"
)

// alert is what a published alert says, as far as it is looked at here.
type alert struct {
	Cluster, Host, Symbol string
	PID                   uint32
	Evidence              struct{ Boot string }
}

// verifyAlerts checks that the alerts that are stored are of processes that found no memory, and that there are any. How many there
// are is only said: an alert is lost where the bus does not take it for a while.
func (f *fleet) verifyAlerts(ctx context.Context, t *truth) error {
	raised := map[alert]bool{} // those that are stored
	for id, p := range t.processes {
		for symbol := range p.failed {
			a := alert{Cluster: id.Cluster, Host: id.Host, Symbol: symbol, PID: id.PID}
			a.Evidence.Boot = id.BootID
			raised[a] = false
		}
	}
	stored := 0
	if err := f.eachMessage(ctx, schema.OutStream, func(m jetstream.Msg) error {
		var a alert
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			return err
		}
		again, known := raised[a]
		if !known {
			return fmt.Errorf("%s: of nothing that was published", m.Data())
		}
		if !again {
			stored++
		}
		raised[a] = true
		return nil
	}); err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	f.say("%d of %d alerts are in %s", stored, len(raised), schema.OutStream)
	if stored == 0 {
		return errors.New("no alert was published")
	}
	return nil
}
