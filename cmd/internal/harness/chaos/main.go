// Command chaos runs a fleet of real processes on loopback and disturbs it: three nats-server nodes with three replicas
// of everything, simulated hosts, and three instances of each consumer. It kills and pauses consumers, simulators and
// nodes, cuts connections, delays a checkpoint commit until another instance owns the shard, fills the disk of a node
// and restarts the whole cluster. The seed determines what happens, and when. Then it lets the fleet recover and
// compares.
//
// The truth is the simulators' log of all batches, written before they publish them and counted without package
// consumer. A run fails if one of these is true:
//   - A logged batch is not in its shard's stream, or it is there under another subject, out of order or changed.
//   - An undisturbed reader counts other batches, events or losses than were published.
//   - A committed state shows other calls, launches, copies or bytes of a process than were published.
//   - A committed state differs in any byte from the state of an undisturbed reader.
//   - A damaged batch is not in the dead letters exactly once for each fold.
//   - No alert is stored, or one whose failed allocation was never published.
//   - A stored alert differs in any byte from that of an undisturbed reader, or is stored twice.
//   - The rule straggler does not name the slow rank of a job, or leak_growth the leaking one, or one of them names
//     another process.
//   - A rank has no stored summary, or one is not that of an undisturbed reader.
//   - The stream stored a commit that is older than the one that it replaced.
//   - A program crashed or ended with a status other than 0.
//   - Something that the run must exercise did not happen: a takeover, a commit of a fenced instance, a repeated batch,
//     a withheld batch, batches of every host.
//
// Durations are reported and never judged.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
)

// options of a run.
type options struct {
	seed      uint64
	duration  time.Duration
	hosts     int
	rate      int
	disk      string
	from      string
	killsOnly bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "determines which disturbances happen, and when")
	flag.DurationVar(&o.duration, "duration", 3*time.Minute, "how long the fleet is disturbed")
	flag.IntVar(&o.hosts, "hosts", 200, "number of simulated hosts")
	flag.IntVar(&o.rate, "rate", 10_000, "events per second of all hosts together")
	flag.StringVar(&o.disk, "disk", "1g", "size of the tmpfs that is filled; it must hold the store of one node")
	flag.StringVar(&o.from, "from", "",
		"revision whose programs run first and are then replaced one by one; it must have the forms of this tree")
	flag.BoolVar(&o.killsOnly, "kills-only", false,
		"only kill consumers: measures takeovers on a cluster that is otherwise healthy")
	flag.Parse()
	cluster.Main("chaos", func(ctx context.Context) error {
		if err := run(ctx, o); err != nil {
			return fmt.Errorf("%w\nchaos: to repeat this run: go run ./cmd/internal/harness/chaos %s", err,
				strings.Join(os.Args[1:], " "))
		}
		return nil
	})
}

func run(ctx context.Context, o options) (err error) {
	if least := simulators * jobs * ranksOfJob; o.hosts < least {
		return fmt.Errorf("-hosts %d: the ranks of the jobs need %d", o.hosts, least)
	}
	w, err := cluster.NewWorkspace("", "chaos", os.Stdout)
	if err != nil {
		return err
	}
	f := &fleet{Workspace: w, options: o, random: rand.New(rand.NewPCG(o.seed, 1)), did: map[string]int{}}
	f.Say("seed %d: disturb for %s; %d hosts, %d events/s, %d shards, %d instances of each consumer; in %s",
		o.seed, o.duration, o.hosts, o.rate, shards, instances, w.Dir)
	defer func() { f.Close(err != nil && ctx.Err() == nil) }()
	for _, step := range []func(context.Context) error{f.build, f.start, f.disturb, f.recover, f.verify} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
