package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

// leakWindow is short, so that a rank that leaks is suspect before its simulator is killed: after 30 windows.
const leakWindow = time.Second

// outputs are what undisturbed readers publish.
type outputs struct {
	alerts    map[change]string // JSON
	summaries map[summary]uint64
	decoder   *schema.Decoder
	faults    []error
}

// change is an alert that fires or clears.
type change struct{ id, state string }

func newOutputs() *outputs {
	return &outputs{alerts: map[change]string{}, summaries: map[summary]uint64{}, decoder: schema.NewDecoder()}
}

// entriesTo returns all folds with the options that the consumers have. They publish to out.
func entriesTo(out *outputs) []fold.Entry {
	leak := config.DefaultLeakCommand()
	leak.Leak.Window = leakWindow
	all := fold.All()
	for i := range all {
		switch all[i].Name() {
		case fold.Leak.Name():
			all[i] = fold.Leak.With(leak, out.raise, nil)
		case fold.Anomaly.Name():
			all[i] = fold.Anomaly.With(config.DefaultAnomalyCommand(), out.raise, out.summarize)
		}
	}
	return all
}

func (o *outputs) raise(a alert.Alert) {
	data, err := json.Marshal(a)
	at := change{a.ID, a.State}
	if _, known := o.alerts[at]; known {
		err = fmt.Errorf("an undisturbed reader raises the alert %s twice as %s", a.ID, a.State)
	}
	if err != nil {
		o.faults = append(o.faults, err)
	}
	o.alerts[at] = string(data)
}

func (o *outputs) summarize(s rank.Summary) {
	var b schema.Batch
	if err := o.decoder.Decode(s.Message, &b); err != nil {
		o.faults = append(o.faults, fmt.Errorf("summary of job %s: %w", s.Job, err))
		return
	}
	o.summaries[summaryOf(&b)] = maphash.Bytes(seed, s.Message)
}

// judged are the rules whose alerts the simulators determine: about whom they must be.
var judged = map[string]func(jobHost) bool{
	"straggler": func(of jobHost) bool { return of.job == nameOfJob(0) && of.host == nameOfHost(slowRank) },
	"leak_growth": func(of jobHost) bool {
		return of == jobHost{clusterOf(0), nameOfJob(0), nameOfHost(leakingRank)}
	},
}

// waitForAlerts waits until the slow rank and the leaking one have alerts, which a kill of their simulator would delay.
func (f *fleet) waitForAlerts(ctx context.Context) error {
	return cluster.Until(ctx, 2*time.Minute, func() error {
		absent := maps.Clone(judged)
		err := cluster.EveryMessage(ctx, f.js, schema.OutStream, func(m jetstream.Msg) error {
			var a struct{ Rule string }
			err := json.Unmarshal(m.Data(), &a)
			delete(absent, a.Rule)
			return err
		})
		if err == nil && len(absent) > 0 {
			err = fmt.Errorf("no alert of the rules %v is stored", slices.Sorted(maps.Keys(absent)))
		}
		return err
	})
}

// storedAlerts are the alerts in the stream GPUTAP_OUT, without those of the wall clock.
type storedAlerts struct {
	seen  map[change]bool
	fired map[string]int // by judged rule
}

// add compares a stored alert with those of undisturbed readers.
func (s *storedAlerts) add(data []byte, want map[change]string) error {
	var a struct{ ID, State, Rule, Cluster, Host, Job string }
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	at, of := change{a.ID, a.State}, jobHost{a.Cluster, a.Job, a.Host}
	about := judged[a.Rule]
	switch {
	case a.Rule == "host_silent":
		return nil
	case s.seen[at]:
		return fmt.Errorf("alert %s is stored twice", data)
	case want[at] != string(data):
		return fmt.Errorf("alert %s is stored; an undisturbed reader raises %q", data, want[at])
	case about != nil && !about(of):
		return fmt.Errorf("alert %s is about another process than the one that is slow or leaks", data)
	}
	s.seen[at] = true
	if about != nil && a.State == alert.Firing {
		s.fired[a.Rule]++
	}
	return nil
}

// verifyOutputs checks the alerts in GPUTAP_OUT. Each fires once and clears at most once, byte for byte as an
// undisturbed reader raises it. The slow rank and the leaking one must have alerts. Others may be absent, because NATS
// could not be reached for too long.
func (f *fleet) verifyOutputs(ctx context.Context, want *outputs) error {
	stored := storedAlerts{map[change]bool{}, map[string]int{}}
	var faults []error
	err := cluster.EveryMessage(ctx, f.js, schema.OutStream, func(m jetstream.Msg) error {
		if err := stored.add(m.Data(), want.alerts); err != nil {
			faults = append(faults, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, rule := range slices.Sorted(maps.Keys(judged)) {
		f.Say("%d × %s fired", stored.fired[rule], rule)
		if stored.fired[rule] == 0 {
			faults = append(faults, fmt.Errorf("no alert of the rule %s is stored", rule))
		}
	}
	f.Say("%d of %d alerts are stored once, byte for byte as an undisturbed reader raises them", len(stored.seen),
		len(want.alerts))
	return firstOf(faults)
}
