// Command events prints every event of a NATS store as one line of JSON, in order of time. Acceptance tests compare
// each call with the program's own report.
//
//	events STORE
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/embedded"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

// event is one line. Fields that a kind lacks are left out.
type event struct {
	Time   schema.KTime `json:"t"`
	Kind   string       `json:"kind"`
	PID    uint32       `json:"pid"`
	Symbol string       `json:"symbol"`
	Op     string       `json:"op"`
	Class  string       `json:"class,omitempty"`
	Dir    string       `json:"direction,omitempty"`
	GPU    string       `json:"gpu,omitempty"`
	Result uint32       `json:"result"`
	Bytes  uint64       `json:"bytes"`
	Ptr    uint64       `json:"ptr,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: events STORE")
		os.Exit(2)
	}
	cluster.Main("events", func(ctx context.Context) error { return run(ctx, os.Args[1]) })
}

func run(ctx context.Context, store string) error {
	server, err := embedded.Start(store, config.Embedded{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer server.Stop()
	connection, js, err := server.Connect("events")
	if err != nil {
		return err
	}
	defer connection.Close()
	events, err := read(ctx, js)
	if err != nil {
		return err
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.Time, b.Time) })
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for i := range events {
		_ = encoder.Encode(&events[i]) // Flush returns the error
	}
	return out.Flush()
}

func read(ctx context.Context, js jetstream.JetStream) (events []event, err error) {
	decoder, batch := schema.NewDecoder(), &schema.Batch{}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if !strings.HasPrefix(name, schema.StreamPrefix) {
			continue // holds no events
		}
		err := cluster.EachMessage(ctx, js, name, jetstream.OrderedConsumerConfig{}, func(m jetstream.Msg) error {
			if err := decoder.Decode(m.Data(), batch); err != nil {
				return err
			}
			for i := range batch.Events {
				events = append(events, eventOf(batch, i))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return events, names.Err()
}

// eventOf reads the columns of an event. A column that the batch's kind lacks reads as 0.
func eventOf(b *schema.Batch, i int) event {
	call := b.Call().At(i)
	if b.Kind == schema.KindLaunch {
		call = uint64(b.Shapes[b.Shape().At(i)].Call)
	}
	c, thread := &b.Calls[call], &b.Threads[b.Thread().At(i)]
	e := event{
		Time: schema.KTime(b.Time().At(i)), Kind: b.Kind.String(), PID: b.Processes[thread.Process].PID,
		Symbol: c.Symbol, Op: c.Op.String(), Class: c.Class.String(), Dir: c.Direction.String(),
		Result: uint32(b.Result().At(i)), Bytes: b.Bytes().At(i), Ptr: b.Ptr().At(i),
	}
	if gpu := b.GPU().At(i); gpu != 0 {
		e.GPU = b.GPUs[gpu-1].UUID
	}
	return e
}
