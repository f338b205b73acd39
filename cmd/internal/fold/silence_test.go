package fold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
)

// watch is an instance with shards. Times are relative to its start.
type watch struct {
	*silence
	start    time.Time
	shards   []heardShard
	up       bool
	raised   []alert.Alert
	reported int
	kept     []alert.Alert // that NATS stores
	fails    error         // of reading them
	wrong    []string      // figures of alerts
}

func newWatch(after time.Duration) *watch {
	w := &watch{start: time.Now(), up: true}
	w.silence = newSilence(config.HostSilentRule{Mode: config.ModeAlert, After: after}, func() bool { return w.up },
		func() []heardShard { return w.shards },
		func(context.Context) ([]alert.Alert, error) { return w.kept, w.fails },
		func(a alert.Alert) { w.raised, w.wrong = append(w.raised, a), append(w.wrong, w.figures(&a)...) })
	return w
}

// owns adds a shard with hosts that are heard now.
func (w *watch) owns(number int, hosts ...string) {
	s := heardShard{number: number, caughtUp: true}
	for _, host := range hosts {
		s.hosts = append(s.hosts, consumer.HostStatus{Cluster: "c", Host: host, Heard: time.Now()})
	}
	w.shards = append(w.shards, s)
}

// pass lets time pass. All hosts except those named are heard every ten seconds.
func (w *watch) pass(d time.Duration, silent ...string) {
	for range d / (10 * time.Second) {
		time.Sleep(10 * time.Second)
		for i := range w.shards {
			for j := range w.shards[i].hosts {
				if h := &w.shards[i].hosts[j]; !slices.Contains(silent, h.Host) {
					h.Heard = time.Now()
				}
			}
		}
		w.step(context.Background())
	}
}

// want compares the alerts since the last call: host, state, and seconds since the start.
func (w *watch) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, a := range w.raised[w.reported:] {
		got = append(got, fmt.Sprintf("%s %s %.0f since %.0f", a.Host, a.State, a.Time.Sub(w.start).Seconds(),
			a.Since.Sub(w.start).Seconds()))
	}
	w.reported = len(w.raised)
	if len(w.wrong) > 0 {
		t.Errorf("wrong figures: %q", w.wrong)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// figures compares the numbers of an alert that fires now with the times of the hosts.
func (w *watch) figures(a *alert.Alert) (wrong []string) {
	if a.State != alert.Firing {
		return nil
	}
	since, hosts := time.Time{}, 0
	for _, s := range w.shards {
		for _, h := range s.hosts {
			ofShard := fmt.Sprintf("of shard %03d ", s.number)
			if a.Host == h.Host || a.Host == "" && strings.Contains(a.Message, ofShard) {
				hosts++
				if since.Before(h.Heard) {
					since = h.Heard
				}
			}
		}
	}
	says := fmt.Sprintf("heard of %s since %s", a.Host, since.Format(time.RFC3339))
	if a.Host == "" {
		says = fmt.Sprintf("any of the %d hosts of ", hosts)
	}
	if !a.Since.Equal(since) || a.Value != a.Time.Sub(since).Seconds() || a.Baseline != after.Seconds() ||
		a.Score != 0 ||
		!strings.Contains(a.Message, says) {
		wrong = append(wrong, fmt.Sprintf("%d hosts were last heard at %s: got %+v", hosts, since, a))
	}
	return wrong
}

const after = 2 * time.Minute

func TestSilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(after)
		w.owns(0, "a", "b", "c")
		w.pass(10 * time.Minute)
		w.want(t)
		w.pass(110*time.Second, "b")
		w.want(t)
		w.pass(10*time.Minute, "b")
		w.want(t, "b firing 720 since 600")
		page := string(consumertest.Page(t, w))
		if !strings.Contains(page, `hostname="b",job="",pod="",rule="host_silent",severity="warning",unit="",user=""} 1`) {
			t.Errorf("the metrics show\n%s", page)
		}
		w.pass(20 * time.Second)
		w.want(t, "b cleared 1320 since 600")
		w.pass(5*time.Minute, "b")
		w.want(t, "b firing 1450 since 1330")
		if w.raised[0].ID != w.raised[1].ID || w.raised[0].ID == w.raised[2].ID {
			t.Error("the alerts need one id for each silence")
		}
		w.shards[0].hosts = w.shards[0].hosts[:1] // b and c were forgotten
		w.pass(10 * time.Second)
		w.want(t, "b cleared 1640 since 1330")
	})
}

// A shard that leaves and comes back while a host of it is silent: the alert is raised again under the same id, and
// clears. Each shard lists its own alerts alone.
func TestSilentHostWhoseShardReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(after)
		w.owns(0, "a", "b")
		w.owns(1, "d", "e")
		w.pass(10*time.Minute, "d")
		w.pass(2*time.Minute, "b", "d")
		w.want(t, "d firing 130 since 0", "b firing 720 since 600")
		listed := func(shard int) (list []string) {
			for _, a := range w.alerts(shard) {
				list = append(list, a.Host+" "+a.State)
			}
			return list
		}
		if got := fmt.Sprint(listed(0), listed(1), listed(2)); got != "[b firing] [d firing] []" {
			t.Errorf("the shards list %s", got)
		}
		left := w.shards[0]
		w.shards = w.shards[1:]
		w.pass(10*time.Second, "d")
		if got := listed(0); got != nil {
			t.Errorf("the shard that left lists %s", got)
		}
		w.shards = append(w.shards, left)
		w.pass(10*time.Second, "b", "d")
		w.want(t, "b firing 740 since 600")
		if w.raised[1].ID != w.raised[2].ID {
			t.Error("the alert has another id")
		}
		w.pass(10*time.Second, "d")
		w.want(t, "b cleared 750 since 600")
		if got := fmt.Sprint(listed(0), listed(1)); got != "[b cleared] [d firing]" {
			t.Errorf("the shards list %s", got)
		}
	})
}

// An instance that was killed has left alerts firing. The next one clears those of hosts that returned meanwhile, as
// soon as it can read them, and does not raise the others again.
func TestSilentHostsOfAKilledInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := newWatch(after)
		before.owns(0, "a", "b", "c")
		before.owns(1, "d", "e")
		before.pass(10 * time.Minute)
		before.pass(5*time.Minute, "b", "c", "d", "e")
		before.want(t, "b firing 720 since 600", "c firing 720 since 600", " firing 720 since 600")
		w := newWatch(after)
		w.start, w.shards, w.kept, w.fails = before.start, before.shards, before.raised, errors.New("unreachable")
		w.pass(5*time.Minute, "c")
		w.want(t, "c firing 1030 since 600") // it is stored once: the id is the same
		w.fails = nil
		w.pass(10*time.Second, "c")
		w.want(t, "b cleared 1210 since 600", " cleared 1210 since 600")
		if w.raised[0].ID != before.raised[1].ID || w.raised[1].ID != before.raised[0].ID {
			t.Error("the alerts have other ids")
		}
		third := newWatch(after)
		third.start, third.shards, third.kept = w.start, w.shards, append(before.raised, w.raised...)[1:2]
		third.pass(5*time.Minute, "c")
		third.want(t)
		third.pass(10 * time.Second)
		third.want(t, "c cleared 1520 since 600")
	})
}

// All hosts of a shard fall silent together: that is one alert.
func TestSilentShardIsOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(after)
		w.owns(0, "a", "b", "c")
		w.owns(1, "d")
		w.pass(10 * time.Minute)
		w.pass(5*time.Minute, "a", "b", "c")
		w.want(t, " firing 720 since 600")
		if message := w.raised[0].Message; !strings.Contains(message, "any of the 3 hosts of shard 000") {
			t.Errorf("the message is %q", message)
		}
		w.pass(10*time.Second, "c")
		w.want(t, " cleared 910 since 600", "c firing 910 since 600")
		w.pass(5*time.Minute, "c", "d") // the only host of its shard
		w.want(t, "d firing 1030 since 910")
	})
}

// After an outage of NATS the hosts get the time to publish again. Meanwhile nothing is judged.
func TestOutageIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(after)
		w.owns(0, "a", "b", "c")
		w.pass(10 * time.Minute)
		w.up = false
		w.pass(time.Hour, "a", "b", "c")
		w.up = true
		w.pass(110*time.Second, "a", "b", "c")
		w.want(t)
		w.pass(20*time.Second, "c")
		w.want(t, "c firing 4330 since 600")
	})
}

// A shard that is not read to its end is not judged: its hosts may have been heard.
func TestLaggingShardIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(after)
		w.owns(0, "a", "b")
		w.pass(10 * time.Minute)
		w.shards[0].caughtUp = false
		w.pass(10*time.Minute, "b")
		w.want(t)
		w.shards[0].caughtUp = true
		w.pass(10*time.Second, "b")
		w.want(t, "b firing 1210 since 600")
	})
}

// An instance that takes a shard over raises the alert under the same id, and the earlier owner says nothing.
func TestTakeoverKeepsTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newWatch(after), newWatch(after)
		first.owns(0, "a", "b")
		first.pass(10 * time.Minute)
		first.pass(5*time.Minute, "b")
		second.shards, first.shards = first.shards, nil
		first.pass(10 * time.Second)
		first.want(t, "b firing 720 since 600")
		second.pass(after+20*time.Second, "b")
		second.pass(10 * time.Second)
		second.want(t, "b firing 1040 since 600", "b cleared 1060 since 600")
		if first.raised[0].ID != second.raised[0].ID {
			t.Error("the ids differ")
		}
		if len(first.fired) != 0 {
			t.Errorf("the first owner still keeps %v", first.fired)
		}
	})
}

func TestSilentRuleFollowsTheModeOfAll(t *testing.T) {
	for mode, want := range map[string]string{
		config.ModeDefault: config.ModeAlert, config.ModeOff: config.ModeOff, config.ModeObserve: config.ModeObserve,
	} {
		c := config.DefaultAnomaly()
		c.Mode = mode
		if got := silentRule(c).Mode; got != want {
			t.Errorf("anomaly.mode %s: %s, want %s", mode, got, want)
		}
	}
}
