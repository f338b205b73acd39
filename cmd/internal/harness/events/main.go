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
	Time     schema.KTime `json:"t"`
	Kind     string       `json:"kind"`
	PID      uint32       `json:"pid"`
	TID      uint32       `json:"tid"`
	Comm     string       `json:"comm"`
	Symbol   string       `json:"symbol"`
	Op       string       `json:"op"`
	Class    string       `json:"class,omitempty"`
	Dir      string       `json:"direction,omitempty"`
	GPU      string       `json:"gpu,omitempty"`
	Ordinal  uint32       `json:"ordinal"`
	Inferred bool         `json:"inferred,omitempty"`
	Duration uint64       `json:"duration_ns"`
	Result   uint32       `json:"result"`
	Bytes    uint64       `json:"bytes"`
	Ptr      uint64       `json:"ptr,omitempty"`
	Aux      uint64       `json:"aux,omitempty"`
	Context  uint64       `json:"context,omitempty"`
	Pool     uint64       `json:"pool,omitempty"`
	Dst      uint64       `json:"dst,omitempty"`
	Src      uint64       `json:"src,omitempty"`
	Stream   uint64       `json:"stream,omitempty"`
	Func     string       `json:"func,omitempty"`
	Read     bool         `json:"read,omitempty"`
	Grid     []uint32     `json:"grid,omitempty"`
	Block    []uint32     `json:"block,omitempty"`
	Shared   uint32       `json:"shared,omitempty"`
	Elapsed  uint64       `json:"elapsed_ns,omitempty"`
	Nodes    []node       `json:"nodes,omitempty"`
}

type node struct {
	Func  string `json:"func"`
	Count uint32 `json:"count"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: events STORE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
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
	for i := range events {
		line, err := json.Marshal(&events[i])
		if err != nil {
			return err
		}
		_, _ = out.Write(append(line, '\n'))
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
		err := cluster.EachMessage(ctx, js, cluster.Range{Stream: name}, func(m jetstream.Msg) error {
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

func eventOf(b *schema.Batch, i int) event {
	switch b.Kind {
	case schema.KindMemory:
		m := b.Memory(i)
		e := begin(b, m.Time, m.Thread, m.Call, m.GPU)
		e.Duration, e.Result, e.Bytes, e.Ptr, e.Aux, e.Pool = m.Duration, m.Result, m.Bytes, m.Ptr, m.Aux, m.Pool
		if m.Context != 0 {
			e.Context = b.Contexts[m.Context-1].Handle
		}
		return e
	case schema.KindLaunch:
		l := b.Launch(i)
		s := &b.Shapes[l.Shape]
		e := begin(b, l.Time, l.Thread, s.Call, l.GPU)
		f := &b.Funcs[s.Func]
		e.Func, e.Read, e.Ptr, e.Stream = f.Name, f.Read, f.Handle, b.CUDAStreams[l.CUDAStream]
		e.Grid, e.Block, e.Shared = s.Grid[:], s.Block[:], s.SharedBytes
		for _, g := range b.Graphs {
			for _, n := range g.Nodes {
				if g.Func == s.Func {
					e.Nodes = append(e.Nodes, node{b.Funcs[n.Func].Name, n.Count})
				}
			}
		}
		return e
	case schema.KindCopy:
		c := b.Copy(i)
		e := begin(b, c.Time, c.Thread, c.Call, c.GPU)
		e.Duration, e.Result, e.Bytes, e.Dst, e.Src = c.Duration, c.Result, c.Bytes, c.Dst, c.Src
		e.Stream = b.CUDAStreams[c.CUDAStream]
		return e
	}
	s := b.Sync(i)
	e := begin(b, s.Time, s.Thread, s.Call, s.GPU)
	e.Duration, e.Result, e.Ptr, e.Aux, e.Elapsed = s.Duration, s.Result, s.CUDAEvent, s.Until, s.Elapsed
	e.Stream = b.CUDAStreams[s.CUDAStream]
	return e
}

func begin(b *schema.Batch, at schema.KTime, thread, call, gpu uint32) event {
	t, c := &b.Threads[thread], &b.Calls[call]
	p := &b.Processes[t.Process]
	e := event{
		Time: at, Kind: b.Kind.String(), PID: p.PID, TID: t.TID, Comm: p.Comm, Symbol: c.Symbol, Op: c.Op.String(),
		Class: c.Class.String(), Dir: c.Direction.String(),
	}
	if gpu != 0 {
		g := &b.GPUs[gpu-1]
		e.GPU, e.Ordinal, e.Inferred = g.UUID, g.Ordinal, g.Inferred
	}
	return e
}
