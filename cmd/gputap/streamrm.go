package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

func streamRemoveCommand(b *busCommand) *cobra.Command {
	yes, generation, fold := false, 0, ""
	cmd := &cobra.Command{
		Use:   "rm",
		Short: "Remove the streams and their contents",
		Long: `Remove all streams of gputap: events, checkpoints, leases, alerts, dead letters, and last the topology.
--generation removes only the events and checkpoints of a closed generation, which every fold must have read.
--fold removes only the checkpoints of a fold that no longer runs.

Producers queue their batches until gputap stream init creates the streams again. Run an interrupted rm again.

` + busExitStatus,
		Example: "  gputap stream rm --nats.url nats://bus:4222 --generation 1\n" +
			"  gputap stream rm --nats.url nats://bus:4222 --fold quota\n" +
			"  gputap stream rm --nats.url nats://bus:4222 --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			one := cmd.Flags().Changed("generation")
			states := cmd.Flags().Changed("fold")
			switch {
			case one && states:
				return app.Usage(errors.New("--generation and --fold: use only one"))
			case one && generation < 1:
				return app.Usage(fmt.Errorf("--generation %d: use 1 or more", generation))
			}
			return b.with(cmd.Context(), func(ctx context.Context, js jetstream.JetStream) error {
				if states {
					return b.removeStates(ctx, js, fold, yes)
				}
				return b.remove(ctx, js, generation, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().IntVar(&generation, "generation", 0, "remove only this closed generation (default: everything)")
	cmd.Flags().StringVar(&fold, "fold", "", "remove only the checkpoints of this fold")
	return cmd
}

func (b *busCommand) removeStates(ctx context.Context, js jetstream.JetStream, fold string, yes bool) error {
	if err := b.confirm(ctx, yes, fmt.Sprintf(
		"This removes the checkpoints of fold %q. It would rebuild its state from the events in the streams.",
		fold)); err != nil {
		return err
	}
	messages, err := shard.RemoveStates(ctx, js, fold)
	if err == nil {
		writeLine(b.p.Stdout, "removed the checkpoints of %s: %s", fold, app.Plural(messages, "message", "messages"))
	}
	return err
}

// remove removes one generation, or everything if generation is 0.
func (b *busCommand) remove(ctx context.Context, js jetstream.JetStream, generation int, yes bool) error {
	own, err := bus.OwnStreams(ctx, js)
	if err != nil {
		return err
	}
	if len(own) == 0 && generation == 0 {
		writeLine(b.p.Stdout, "nothing to remove")
		return nil
	}
	what := "all streams of gputap"
	if generation > 0 {
		what = fmt.Sprint("generation ", generation)
		if own, err = ofGeneration(ctx, js, own, generation); err != nil {
			return err
		}
	}
	messages, bytes := uint64(0), uint64(0)
	for _, s := range own {
		messages, bytes = messages+s.State.Msgs, bytes+s.State.Bytes
	}
	question := fmt.Sprintf("This removes %s: %s with %d messages, %s.", what, app.Plural(uint64(len(own)), "stream",
		"streams"), messages, app.Bytes(bytes))
	if err := b.confirm(ctx, yes, question); err != nil {
		return err
	}
	var removed []string
	if generation > 0 {
		removed, err = shard.RemoveGeneration(ctx, js, generation)
	} else {
		removed, err = bus.RemoveStreams(ctx, js)
	}
	for _, name := range removed {
		writeLine(b.p.Stdout, "removed %s", name)
	}
	return err
}

func ofGeneration(ctx context.Context, js jetstream.JetStream, own map[string]*jetstream.StreamInfo,
	generation int) (map[string]*jetstream.StreamInfo, error) {
	t, err := bus.ReadTopology(ctx, js)
	if err != nil {
		return nil, err
	}
	if generation == t.Generation { // an error before the question
		return nil, fmt.Errorf("remove generation %d: producers publish to it; only closed generations can be removed",
			generation)
	}
	of := map[string]*jetstream.StreamInfo{}
	for _, g := range t.Previous {
		for _, shard := range g.Numbers() {
			if s := own[schema.StreamName(shard)]; s != nil && g.Generation == generation {
				of[s.Config.Name] = s
			}
		}
	}
	return of, nil
}

// confirm asks on a terminal. Without a terminal it needs --yes.
func (b *busCommand) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return app.Usage(errors.New(question + " Use --yes to confirm, because there is no terminal to ask on"))
	}
	return ask(ctx, os.Stdin, b.p.Stderr, question)
}

// ask leaves its goroutine behind when ctx ends, because a read from a terminal cannot be interrupted.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	_, _ = fmt.Fprintf(out, "%s\nType yes to continue: ", question)
	answered := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(io.LimitReader(in, 64)).ReadString('\n')
		answered <- answer
	}()
	select {
	case answer := <-answered:
		if strings.TrimSpace(answer) == "yes" {
			return nil
		}
	case <-ctx.Done():
		return fmt.Errorf("nothing was removed: %w", ctx.Err())
	}
	return errors.New("nothing was removed")
}
