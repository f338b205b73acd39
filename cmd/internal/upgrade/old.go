package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/cluster"
)

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
			r.program("gputap-" + fold), "--nats.url", f.urls, "--metrics.addr", addr, "--display-interval", "1s", "--log.format", "text",
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
		if o.Name == "old-leak" {
			if f.oldRows, err = lastReport(o.Log()); err != nil {
				return err
			}
		}
	}
	return nil
}

// oldRow is what the oldest gputap-leak said of a process in its last report.
type oldRow struct{ state, unfreed, evidence string }

// lastReport reads the rows of the last report by PID; it has the 20 processes that hold, or left, most.
func lastReport(path string) (map[uint32]oldRow, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rows := map[uint32]oldRow{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "HOST ") {
			clear(rows)
			continue
		}
		cells := betweenCells.Split(strings.TrimSpace(line), -1)
		if pid, err := strconv.ParseUint(cells[min(1, len(cells)-1)], 10, 32); err == nil && len(cells) == 9 && cells[0] == hostName {
			rows[uint32(pid)] = oldRow{cells[3], cells[7], cells[8]}
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no report with processes", path)
	}
	return rows, nil
}

var betweenCells = regexp.MustCompile(` {2,}`)
