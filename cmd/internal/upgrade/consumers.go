package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/anomaly"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
)

// folds are made as the commands make them.
var folds = map[string]func() consumer.Stateful{
	"leak":      func() consumer.Stateful { return leak.New(leak.Config{}) },
	"launch":    func() consumer.Stateful { return launch.New(launch.Config{}) },
	"bandwidth": func() consumer.Stateful { return bandwidth.New(bandwidth.Config{}) },
	"anomaly":   func() consumer.Stateful { return anomaly.New(anomaly.Config{}) },
}

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

// folded is nil when the committed state of every fold goes to the end of a shard's stream.
func (f *fleet) folded(ctx context.Context, shard int) error {
	for name, fold := range folds {
		saved, err := consumer.Saved(ctx, f.js, name, shard)
		if err != nil {
			return err
		}
		reader := consumer.NewReader(consumer.ReaderOptions{Shard: shard}, f.js, fold(), slog.New(slog.DiscardHandler))
		if end, err := reader.Folded(ctx, saved.Sequence); err != nil || !end {
			return errors.Join(err, fmt.Errorf("%s of shard %d stands at %d", name, shard, saved.Sequence))
		}
	}
	return nil
}

// oldConsumer keeps no state; what it makes of the stream is on its page.
type oldConsumer struct {
	cluster.Process
	page string
}

func (f *fleet) startOldConsumers(ctx context.Context, r *release) error {
	ports, err := cluster.FreePorts(len(oldConsumers))
	if err != nil {
		return err
	}
	for i, fold := range oldConsumers {
		addr := fmt.Sprintf("127.0.0.1:%d", ports[i])
		o := &oldConsumer{page: "http://" + addr, Process: cluster.Process{Name: "old-" + fold, Dir: f.dir, Args: []string{
			r.program("gputap-" + fold), "--nats.url", f.urls, "--metrics.addr", addr, "--display-interval", "0", "--log.format", "text",
		}}}
		f.olds = append(f.olds, o)
		if err := o.Start(); err != nil {
			return err
		}
		if err := cluster.Until(ctx, patience, func() error {
			_, err := get(o.page + "/readyz")
			return err
		}); err != nil {
			return fmt.Errorf("gputap-%s of %s: %w", fold, r.name, err)
		}
	}
	return nil
}

func get(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// values adds up a metric by what one of its labels says. Labels of "" hold what has no such label.
func values(page, name, label string) map[string]float64 {
	sums := map[string]float64{}
	for l := range strings.Lines(page) {
		at := strings.LastIndexByte(l, ' ')
		if at < 0 || !strings.HasPrefix(l, name+"{") && !strings.HasPrefix(l, name+" ") {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(l[at:]), 64)
		if err != nil {
			continue
		}
		_, behind, _ := strings.Cut(l, label+`="`)
		word, _, _ := strings.Cut(behind, `"`)
		sums[word] += v
	}
	return sums
}

// endOldConsumers says what they made of the streams, and what today's folds make of the same.
func (f *fleet) endOldConsumers(ctx context.Context) error {
	for _, o := range f.olds {
		page, err := get(o.page + "/metrics")
		if err != nil {
			return err
		}
		f.say("%s, before it ends: batches %v, dead letters %v, missing %v, lag %v", o.Name, values(page, "gputap_consumer_batches_total", "result"),
			values(page, "gputap_consumer_dead_letters_total", "result"), values(page, "gputap_consumer_gap_batches_total", "hostname"),
			values(page, "gputap_consumer_lag_messages", "shard"))
		if err := f.end(&o.Process); err != nil {
			return err
		}
	}
	return nil
}
