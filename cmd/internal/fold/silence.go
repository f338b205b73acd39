package fold

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus"
)

const (
	ruleSilent  = "host_silent"
	silencePoll = 5 * time.Second
	readTimeout = 10 * time.Second // to read the stored alerts
)

// silence raises an alert for each known host of which NATS stores nothing any more, and clears it when batches of the
// host arrive again. Events cannot show that none come, so this rule alone reads the wall clock and is no part of a
// fold.
//
// Each instance judges the shards that it owns, while it is connected and has read all that they store. If all hosts of
// a shard are silent, and there are several, the cause lies elsewhere: then one alert is raised for the shard.
// The id of an alert follows from the host and the time when NATS last stored something of it, so the next owner of a
// shard raises it under the same id. An owner reads which alerts the one before it has left firing: the hosts may have
// returned meanwhile.
type silence struct {
	cfg       config.HostSilentRule
	shards    func() []heardShard
	connected func() bool
	stored    func(context.Context) ([]alert.Alert, error) // all alerts that NATS keeps
	raise     raise

	mu     sync.Mutex
	book   *alert.Book
	fired  map[alert.Key]int // shard of each alert that fires
	raised map[string]int    // shard of each alert, by id
	since  time.Time         // when the connection was found working, after it had not been
	read   map[int]bool      // shards whose stored alerts were adopted
}

// heardShard is a shard that this instance owns.
type heardShard struct {
	number   int
	caughtUp bool // everything that it stores is read
	hosts    []consumer.HostStatus
}

func newSilence(cfg config.HostSilentRule, connected func() bool, shards func() []heardShard,
	stored func(context.Context) ([]alert.Alert, error), raise raise) *silence {
	return &silence{cfg: cfg, shards: shards, connected: connected, stored: stored, raise: raise,
		book: alert.NewBook(alert.Config{Family: "anomaly"}), fired: map[alert.Key]int{},
		raised: map[string]int{}, read: map[int]bool{}}
}

// shardsOf lists the shards that a consumer owns.
func shardsOf(c *consumer.Consumer) func() []heardShard {
	return func() (list []heardShard) {
		for _, s := range c.Shards() {
			list = append(list, heardShard{s.Number, s.Reader.Stats().Lag == 0, s.Reader.Hosts()})
		}
		return list
	}
}

// start looks at the hosts until stop is called.
func (s *silence) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for bus.Sleep(ctx, silencePoll) {
			s.step(ctx)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (s *silence) step(ctx context.Context) {
	shards := s.shards()
	left := s.left(ctx, shards)
	s.mu.Lock()
	now := time.Now()
	switch {
	case !s.connected():
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = now
	}
	s.release(shards)
	for _, shard := range shards {
		s.adopt(&shard, left)
	}
	// Hosts need time to publish again after an outage.
	if !s.since.IsZero() && now.Sub(s.since) >= s.cfg.After {
		for _, shard := range shards {
			if shard.caughtUp {
				s.judge(&shard, now)
			}
		}
	}
	changes := s.book.Changes()
	s.mu.Unlock()
	for _, a := range changes {
		s.raise(a)
	}
}

// left returns the stored alerts that fire, if a shard is new here. The next step tries again after a failure.
func (s *silence) left(ctx context.Context, owned []heardShard) (firing []alert.Alert) {
	if !slices.ContainsFunc(owned, func(o heardShard) bool { return o.caughtUp && !s.read[o.number] }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, err := s.stored(ctx)
	if err != nil {
		return nil
	}
	for _, o := range owned {
		s.read[o.number] = s.read[o.number] || o.caughtUp
	}
	return slices.DeleteFunc(all, func(a alert.Alert) bool { return a.Rule != ruleSilent || a.State != alert.Firing })
}

// adopt makes the alerts of a shard that another owner has left firing those of this one.
func (s *silence) adopt(shard *heardShard, left []alert.Alert) {
	keys := []alert.Key{keyOfShard(shard.number)}
	for _, h := range shard.hosts {
		keys = append(keys, keyOfHost(&h))
	}
	for _, a := range left {
		i := slices.IndexFunc(keys, func(k alert.Key) bool { return k.ID(a.Since) == a.ID })
		if i >= 0 && !s.book.Fires(keys[i]) {
			s.fired[keys[i]], s.raised[a.ID] = shard.number, shard.number
			s.book.Fire(keys[i], a.Time, 0, func() alert.Alert { return a })
		}
	}
	s.book.Changes() // they are stored
}

// release drops the alerts of shards that another instance owns now. That instance raises them under the same ids.
func (s *silence) release(owned []heardShard) {
	for k, shard := range s.fired {
		if !slices.ContainsFunc(owned, func(o heardShard) bool { return o.number == shard }) {
			s.book.Drop(k)
			delete(s.fired, k)
		}
	}
	maps.DeleteFunc(s.read, func(shard int, _ bool) bool {
		return !slices.ContainsFunc(owned, func(o heardShard) bool { return o.number == shard })
	})
}

// alerts returns the alerts of a shard that this instance owns: those that fire, and those that cleared last.
func (s *silence) alerts(shard int) []alert.Alert {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, kept := s.book.Alerts(), map[string]int{}
	for i := range all {
		kept[all[i].ID] = s.raised[all[i].ID]
	}
	s.raised = kept // the book keeps a limited number
	return slices.DeleteFunc(all, func(a alert.Alert) bool { return kept[a.ID] != shard })
}

func (s *silence) judge(shard *heardShard, now time.Time) {
	heard, silent := map[alert.Key]time.Time{}, []consumer.HostStatus{}
	for _, h := range shard.hosts {
		k := keyOfHost(&h)
		s.book.Advance(k.HostID(), now)
		if heard[k] = h.Heard; now.Sub(h.Heard) >= s.cfg.After && !h.Heard.IsZero() {
			silent = append(silent, h)
		}
	}
	whole := keyOfShard(shard.number)
	all := len(silent) == len(shard.hosts) && len(silent) > 1
	for k, number := range s.fired {
		at, known := heard[k]
		switch {
		case number != shard.number:
		case k == whole && !all:
			s.clear(k, now, "hosts of the shard are heard again")
		case k != whole && !known:
			s.clear(k, now, "the host was forgotten after a day")
		case k != whole && now.Sub(at) < s.cfg.After:
			s.clear(k, at, "the host is heard again")
		}
	}
	if all {
		s.fireShard(whole, shard.number, silent, now)
		return
	}
	for _, h := range silent {
		s.fireHost(&h, shard.number, now)
	}
}

// keyOfShard is that of the alert about all hosts of a shard.
func keyOfShard(number int) alert.Key {
	return alert.Key{Rule: ruleSilent, Detail: fmt.Sprintf("shard %03d", number)}
}

func keyOfHost(h *consumer.HostStatus) alert.Key {
	k := alert.Key{Rule: ruleSilent}
	k.Process.Cluster, k.Process.Host = h.Cluster, h.Host
	return k
}

func (s *silence) clear(k alert.Key, at time.Time, why string) {
	s.book.Clear(k, at, why)
	delete(s.fired, k)
}

func (s *silence) fireHost(h *consumer.HostStatus, shard int, now time.Time) {
	s.fire(keyOfHost(h), shard, h.Heard, now, fmt.Sprintf("Nothing was heard of %s since %s. Check whether the host "+
		"is up, whether gputap-producer runs there, and whether it reaches NATS.", h.Host,
		h.Heard.Format(time.RFC3339)))
}

func (s *silence) fireShard(k alert.Key, shard int, hosts []consumer.HostStatus, now time.Time) {
	newest := slices.MaxFunc(hosts, func(a, b consumer.HostStatus) int { return a.Heard.Compare(b.Heard) }).Heard
	s.fire(k, shard, newest, now, fmt.Sprintf("Nothing was heard of any of the %d hosts of %s since %s. Check whether "+
		"producers reach NATS.", len(hosts), k.Detail, newest.Format(time.RFC3339)))
}

// fire raises an alert, unless it fires already. A later silence of the same host has another id.
func (s *silence) fire(k alert.Key, shard int, since, now time.Time, message string) {
	if s.book.Fires(k) {
		return
	}
	s.fired[k], s.raised[k.ID(since)] = shard, shard
	s.book.Fire(k, now, 0, func() alert.Alert {
		a := alert.Alert{Severity: alert.Warning, Since: since, Message: message, Value: now.Sub(since).Seconds(),
			Baseline: s.cfg.After.Seconds()}
		if s.cfg.Mode == config.ModeObserve {
			a.Severity = alert.Info
		}
		return a
	})
}

// Describe sends nothing, because the fold has the same families for its own rules.
func (s *silence) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *silence) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	send := s.book.Metrics()
	s.mu.Unlock()
	send(to)
}

// silentRule returns the configuration of the rule with the mode of all rules applied.
func silentRule(c config.Anomaly) config.HostSilentRule {
	r := c.Rules.HostSilent
	if c.Mode != config.ModeDefault {
		r.Mode = cmp.Or(c.Mode, r.Mode)
	}
	return r
}
