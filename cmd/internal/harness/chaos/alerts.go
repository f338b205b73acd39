package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/schema"
)

// alert is the part of a published alert that is compared here.
type alert struct {
	Cluster, Host, Symbol string
	PID                   uint32
	Evidence              struct{ Boot string }
}

// verifyAlerts checks that there are stored alerts, and that all of them are of processes whose allocations failed. How
// many there are is only reported: an alert is lost if NATS is unreachable for too long.
func (f *fleet) verifyAlerts(ctx context.Context, t *truth) error {
	raised := map[alert]bool{} // value: it is stored
	for id, p := range t.processes {
		for symbol := range p.failed {
			a := alert{Cluster: id.Cluster, Host: id.Host, Symbol: symbol, PID: id.PID}
			a.Evidence.Boot = id.BootID
			raised[a] = false
		}
	}
	stored := 0
	err := cluster.EveryMessage(ctx, f.js, schema.OutStream, func(m jetstream.Msg) error {
		var a alert
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			return err
		}
		again, known := raised[a]
		if !known {
			return fmt.Errorf("alert %s: no such failed allocation was published", m.Data())
		}
		if !again {
			stored++
		}
		raised[a] = true
		return nil
	})
	if err != nil {
		return err
	}
	f.Say("%d of %d alerts are stored in %s", stored, len(raised), schema.OutStream)
	if stored == 0 {
		return errors.New("no alert was published")
	}
	return nil
}
