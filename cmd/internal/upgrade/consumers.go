package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/consumer"
)

// startConsumers starts one instance of each that keeps its states.
func (f *fleet) startConsumers(ctx context.Context, r *release) error {
	for _, fold := range consumers {
		p := &cluster.Process{Name: fold, Dir: f.dir, Args: []string{
			r.program("gputap-" + fold), "--nats.url", f.urls, "--metrics.addr", "", "--display-interval", "0", "--log.format", "text",
			"--consumer.checkpoint", "1s",
		}}
		f.consumers = append(f.consumers, p)
		if err := p.Start(); err != nil {
			return err
		}
	}
	for _, p := range f.consumers {
		if err := cluster.Until(ctx, patience, func() error {
			saved, err := consumer.Saved(ctx, f.js, p.Name, 0)
			if err == nil && saved.Sequence == 0 {
				err = errors.New("no state is saved yet")
			}
			return err
		}); err != nil {
			return fmt.Errorf("gputap-%s of %s: %w: see %s", p.Name, r.name, err, p.Log())
		}
	}
	f.say("consumers of %s fold and save", r.name)
	return nil
}

// changeConsumers replaces them one by one. Each must go on exactly where the one before it ended.
func (f *fleet) changeConsumers(ctx context.Context, r *release) error {
	for _, p := range f.consumers {
		if err := f.end(p); err != nil {
			return err
		}
		saved, err := consumer.Saved(ctx, f.js, p.Name, 0)
		if err != nil {
			return err
		}
		had := len(owned(p))
		p.Args[0] = r.program(filepath.Base(p.Args[0]))
		if err := p.Start(); err != nil {
			return err
		}
		if err := cluster.Until(ctx, patience, func() error {
			if len(owned(p)) == had {
				return errors.New("it has not taken up its shard yet")
			}
			return nil
		}); err != nil {
			return fmt.Errorf("gputap-%s of %s: %w: see %s", p.Name, r.name, err, p.Log())
		}
		if took := owned(p)[had]; took.sequence != saved.Sequence || took.batches == 0 {
			return fmt.Errorf("gputap-%s of %s begins behind message %d with %d batches; the one before it had saved up to %d",
				p.Name, r.name, took.sequence, took.batches, saved.Sequence)
		} else {
			f.say("gputap-%s of %s took up a state of %d bytes and %d batches, up to message %d", p.Name, r.name, len(saved.State), took.batches, took.sequence)
		}
	}
	return nil
}

func (f *fleet) end(p *cluster.Process) error {
	if !p.Running() {
		return fmt.Errorf("%s has ended by itself: %w: see %s", p.Name, p.Err(), p.Log())
	}
	if err := p.End(syscall.SIGTERM, patience); err != nil {
		return err
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %w: see %s", p.Name, err, p.Log())
	}
	return nil
}

// taking is what a consumer said of a shard that it has from now on.
type taking struct{ sequence, batches uint64 }

var takingLine = regexp.MustCompile(`msg="shard is owned" .* seq=(\d+) .*batches=(\d+)`)

func owned(p *cluster.Process) (list []taking) {
	text, _ := os.ReadFile(p.Log())
	for _, m := range takingLine.FindAllStringSubmatch(string(text), -1) {
		sequence, _ := strconv.ParseUint(m[1], 10, 64)
		batches, _ := strconv.ParseUint(m[2], 10, 64)
		list = append(list, taking{sequence, batches})
	}
	return list
}
