package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
)

// hang lets an instance own every shard of a fold, receive its questions and answer none, as a stopped process does.
func (f *simFleet) hang(fold string) {
	f.tb.Helper()
	nc := bustest.Dial(f.tb, f.url).Conn()
	for shard := range f.shards {
		_, err := nc.Subscribe(schema.QuestionSubject(fold, shard), func(*nats.Msg) {})
		f.check(err)
	}
	f.check(nc.Flush())
}

const silence = "0 of 3 shards answered; missing: 0, 1, 2 (%s: no answer in time)"

// TestHungConsumerIsNamed lets one consumer hang while gputap-leak answers: every command shows what leak knows, and
// names the fold and its shards.
func TestHungConsumerIsNamed(t *testing.T) {
	t.Parallel()
	for _, fold := range []string{"launch", "bandwidth", "anomaly"} {
		t.Run(fold, func(t *testing.T) {
			t.Parallel()
			f := leakFleet(t)
			f.hang(fold)
			stdout, _, err := f.typed("status", "--timeout", "1s")
			if app.ExitCode(err) != 3 || !strings.Contains(err.Error(), fold+": 3 of 3 shards do not answer") ||
				!strings.Contains(stdout, "8 of 8 heard") ||
				!strings.Contains(stdout, "leak       3 of 3 shards answer, ") ||
				!strings.Contains(stdout, fmt.Sprintf("%-10s 0 of 3 shards answer\n", fold)) ||
				!strings.Contains(stdout, "verdict    unhealthy") {
				t.Errorf("status: %v\n%s", err, stdout)
			}
			want := fmt.Sprintf(silence, fold)
			stdout, _, err = f.typed("top", "--once", "--timeout", "1s")
			if app.ExitCode(err) != 4 || err.Error() != want || !strings.Contains(stdout, "8 hosts  ") ||
				!strings.Contains(stdout, "0 of 3 shards; missing: 0, 1, 2 ("+fold+": no ") {
				t.Errorf("top: %v\n%s", err, stdout)
			}
			if fold == "anomaly" { // describe does not ask it
				return
			}
			p := f.processes[13]
			stdout, _, err = f.typed("describe", "process", fmt.Sprintf("%s/%d", p.host, p.pid), "--timeout", "1s")
			if app.ExitCode(err) != 4 || err.Error() != want || !strings.Contains(stdout, "live "+app.Bytes(p.live)) {
				t.Errorf("describe: %v\n%s", err, stdout)
			}
		})
	}
}

// TestHungLeak: without gputap-leak nothing is known about hosts and memory, and no figure is 0.
func TestHungLeak(t *testing.T) {
	t.Parallel()
	f := newFleet(t, shards)
	f.hang("leak")
	stdout, _, err := f.typed("status", "--timeout", "1s")
	if app.ExitCode(err) != 3 || !strings.Contains(stdout, "hosts      unknown without gputap-leak") ||
		strings.Contains(stdout, "\nlost") || !strings.Contains(stdout, "leak       0 of 3 shards answer\n") {
		t.Errorf("status: %v\n%s", err, stdout)
	}
	stdout, _, _ = f.typed("status", "--timeout", "1s", "-o", "json")
	var s map[string]any
	f.check(json.Unmarshal([]byte(stdout), &s))
	fold := s["folds"].([]any)[0].(map[string]any)
	if s["hosts"] != nil || s["lost"] != nil || fold["lag"] != nil || fold["invalid"] != nil ||
		s["alerts"].(map[string]any)["recent"] != nil {
		t.Errorf("status prints %s", stdout)
	}
	want := fmt.Sprintf(silence, "leak")
	for _, line := range []string{
		"top --once", "top -o json", "describe process 7", "get processes", "get gpus", "get hosts",
	} {
		if _, _, err := f.typed(append(strings.Fields(line), "--timeout", "1s")...); app.ExitCode(err) != 4 ||
			err.Error() != want {
			t.Errorf("%s ends with %d, %v", line, app.ExitCode(err), err)
		}
	}
}

// TestAbsentLeak: a program that does not run is named, with the same status by every command.
func TestAbsentLeak(t *testing.T) {
	t.Parallel()
	f := newFleet(t, shards)
	for _, line := range []string{"top --once", "top -o json", "describe process 7", "get processes", "get gpus"} {
		if _, _, err := f.typed(strings.Fields(line)...); app.ExitCode(err) != 4 ||
			err.Error() != "no instance of gputap-leak answers; start one" {
			t.Errorf("%s ends with %d, %v", line, app.ExitCode(err), err)
		}
	}
}

// TestMovingShardsAreNoStoppedConsumers: just after gputap stream init --shards N, no instance owns a new shard.
func TestMovingShardsAreNoStoppedConsumers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	const moving = "the shards are moving to generation 2; ask again in some seconds"
	stdout, _, err := f.typed("status")
	if app.ExitCode(err) != 3 || strings.Contains(stdout, "moving") ||
		!strings.Contains(stdout, "leak       not running") {
		t.Errorf("before: %v\n%s", err, stdout)
	}
	f.check(bus.EnsureStreams(t.Context(), f.js, bus.StreamOptions{Shards: 4}))
	stdout, _, err = f.typed("status")
	if app.ExitCode(err) != 3 || err.Error() != "unhealthy: "+moving ||
		!strings.Contains(stdout, "verdict    unhealthy: "+moving+"\n") || strings.Contains(stdout, "not running") ||
		!strings.Contains(stdout, "leak       no shard answers yet\n") {
		t.Errorf("status: %v\n%s", err, stdout)
	}
	for _, line := range []string{"top --once", "get processes", "describe process 7"} {
		if _, _, err := f.typed(strings.Fields(line)...); app.ExitCode(err) != 4 || err.Error() != moving {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestUnhealthyFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	stdout, _, err := f.typed("status")
	if app.ExitCode(err) != 3 || !strings.Contains(err.Error(), "gputap-leak does not run") ||
		!strings.Contains(stdout, "hosts      unknown without gputap-leak") ||
		!strings.Contains(stdout, "alerts     unknown without gputap-anomaly") ||
		!strings.HasSuffix(stdout, "verdict    unhealthy: gputap-leak does not run; "+
			"not running: leak, launch, bandwidth, anomaly\n") {
		t.Errorf("without consumers: %v\n%s", err, stdout)
	}
	if stdout, stderr, err := f.typed("get", "hosts"); app.ExitCode(err) != 4 || stdout+stderr != "" {
		t.Errorf("get hosts: %v, %s%s", err, stdout, stderr)
	}
	f.url = bustest.NewServer(t, "").Connect().Conn().ConnectedUrl()
	if _, _, err := f.typed("status"); app.ExitCode(err) != 1 || !strings.Contains(err.Error(), "stream init") {
		t.Errorf("without streams: %v", err)
	}
}
