package shard

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/schema"
)

// TestTransitions has a row for each transition of the state machine, and for events that must not cause one.
func TestTransitions(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	l := limits{settle: 3 * time.Second, ttl: 10 * time.Second, rebuild: 30 * time.Second}
	var never time.Time
	other := event{what: looked, holder: "b"}
	otherPreferred := event{what: looked, holder: "a", self: true}
	ours := event{what: looked, preferred: true}
	notOurs := event{what: looked}
	kept := event{what: looked, holder: "a", self: true, preferred: true}
	for _, tt := range []struct {
		name string
		from status
		e    event
		to   status
		do   action
	}{
		{"another holds it", status{}, other, status{state: standby}, doNothing},
		{"nobody holds it, ours", status{}, ours, status{state: free, since: now}, claim},
		{"nobody holds it, another's", status{}, notOurs, status{state: free, since: now}, doNothing},
		{"free for two leases", status{state: free, since: ago(20 * time.Second)}, notOurs,
			status{state: free, since: ago(20 * time.Second)}, doNothing},
		{"free for longer", status{state: free, since: ago(20*time.Second + 1)}, notOurs,
			status{state: free, since: ago(20*time.Second + 1)}, claim},
		{"free no more", status{state: free, since: ago(time.Hour)}, other, status{state: standby}, doNothing},
		{"own lease of before", status{state: free, since: ago(time.Hour)}, kept, status{state: free, since: now},
			doNothing},
		{"taken over", status{}, event{what: wasTakenOver}, status{state: finished}, doNothing},
		{"taken over while owned", status{state: owning}, event{what: wasTakenOver}, status{state: owning}, doNothing},

		{"lease acquired", status{state: free, since: ago(time.Hour)}, event{what: acquired}, status{state: claiming},
			doNothing},
		{"lease acquired again", status{state: waiting, since: ago(1), waitingSince: ago(time.Hour)},
			event{what: acquired},
			status{state: claiming, waitingSince: ago(time.Hour)}, doNothing},
		{"claimed", status{state: claiming, waitingSince: ago(5)}, event{what: claimed},
			status{state: restoring, waitingSince: ago(5)}, doNothing},
		{"restored", status{state: restoring, since: ago(1), waitingSince: ago(5)}, event{what: restored},
			status{state: owning, since: ago(1)}, doNothing},
		{"claimed while draining", status{state: draining}, event{what: claimed}, status{state: draining}, doNothing},
		{"restored while draining", status{state: draining}, event{what: restored}, status{state: draining}, doNothing},

		{"kept", status{state: owning, since: ago(time.Hour)}, kept, status{state: owning}, doNothing},
		{"another is preferred", status{state: owning}, otherPreferred, status{state: owning, since: now}, doNothing},
		{"another is preferred for too short", status{state: owning, since: ago(3*time.Second - 1)}, otherPreferred,
			status{state: owning, since: ago(3*time.Second - 1)}, doNothing},
		{"another stays preferred", status{state: owning, since: ago(3 * time.Second)}, otherPreferred,
			status{state: draining, since: ago(3 * time.Second)}, handOver},
		{"another stays preferred while restoring", status{state: restoring, since: ago(time.Minute)}, otherPreferred,
			status{state: draining, since: ago(time.Minute)}, handOver},
		{"draining goes on", status{state: draining, since: ago(time.Hour)}, kept,
			status{state: draining, since: ago(time.Hour)}, doNothing},

		{"released", status{state: draining, since: ago(1)}, event{what: released}, status{}, doNothing},
		{"folded to its end", status{state: owning}, event{what: foldedAll}, status{state: finished}, doNothing},
		{"finished stays", status{state: finished}, ours, status{state: finished}, doNothing},
		{"reopened", status{state: finished}, event{what: reopened}, status{}, doNothing},
		{"others are not reopened", status{state: owning, since: ago(1)}, event{what: reopened},
			status{state: owning, since: ago(1)}, doNothing},

		{"must wait", status{state: restoring}, event{what: mustWait},
			status{state: waiting, since: now, waitingSince: now}, doNothing},
		{"must wait again", status{state: restoring, waitingSince: ago(time.Hour)}, event{what: mustWait},
			status{state: waiting, since: now, waitingSince: ago(time.Hour)}, doNothing},
		{"waiting is claimed again", status{state: waiting, since: ago(1), waitingSince: ago(9)}, ours,
			status{state: waiting, since: ago(1), waitingSince: ago(9)}, claim},
		{"another waits", status{state: waiting, since: ago(1), waitingSince: ago(9)}, other, status{state: standby},
			doNothing},
		{"failed while waiting", status{state: claiming, waitingSince: ago(9)}, event{what: released}, status{},
			doNothing},

		{"newer state", status{state: restoring}, event{what: foundNewer}, status{state: refused, since: now},
			doNothing},
		{"refused, free", status{state: refused, since: ago(30*time.Second - 1)}, ours,
			status{state: refused, since: ago(30*time.Second - 1)}, doNothing},
		{"refused, free for long", status{state: refused, since: ago(30 * time.Second)}, ours,
			status{state: refused, since: ago(30 * time.Second)}, rebuild},
		{"refused, free for long, another's", status{state: refused, since: ago(time.Hour)}, notOurs,
			status{state: refused, since: ago(time.Hour)}, doNothing},
		{"refused, another holds it", status{state: refused, since: ago(time.Hour)}, other,
			status{state: refused, since: now}, doNothing},
		{"refused, taken over", status{state: refused, since: never}, event{what: wasTakenOver},
			status{state: finished}, doNothing},
	} {
		if to, do := tt.from.next(tt.e, now, l); to != tt.to || do != tt.do {
			t.Errorf("%s: %s → %+v, action %d; want %+v, action %d", tt.name, tt.from.state, to, do, tt.to, tt.do)
		}
	}
}

// newGroup has never run.
func newGroup(log *logBuffer) *Group {
	return New(Options{Fold: "chain", Instance: "a"}, nil, slog.New(slog.NewJSONHandler(log, nil)))
}

// TestLongWaitIsLoggedOnce: and again after no shard has waited.
func TestLongWaitIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log logBuffer
	g := newGroup(&log)
	for n, round := range []struct {
		end    eventKind
		longer time.Duration
		logged int
	}{{mustWait, 0, 0}, {mustWait, 2 * longWait, 1}, {mustWait, 2 * longWait, 1}, {released, 0, 1}, {mustWait, 0,
		1}, {mustWait, 2 * longWait, 2}} {
		g.apply(5, event{what: acquired})
		s := g.shards[5]
		if !s.waitingSince.IsZero() {
			s.waitingSince = s.waitingSince.Add(-round.longer)
		}
		o := &owner{shard: 5, waitsFor: 0}
		s.owner = o
		g.ownerEnded(o, round.end, false)
		if s.owner != nil {
			t.Fatal("it is still owned")
		}
		if logged := log.count("shard waits long"); logged != round.logged {
			t.Errorf("round %d: logged %d times, want %d", n, logged, round.logged)
		}
	}
}

// TestEndOfOwnership: how it changes the states of this and of other shards, also after the bus was recreated.
func TestEndOfOwnership(t *testing.T) {
	t.Parallel()
	born := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		name  string
		owner *owner
		end   eventKind
		want  state // of the owned shard 2
		other state // of shard 0, which was finished
	}{
		{"folded to its end", &owner{created: born, waitsFor: noShard}, foldedAll, finished, finished},
		{"on a bus that was removed", &owner{created: born.Add(1), waitsFor: noShard}, foldedAll, standby, finished},
		{"waits for a finished shard", &owner{created: born, waitsFor: 0}, mustWait, waiting, standby},
		{"waits for another shard", &owner{created: born, waitsFor: 1}, mustWait, waiting, finished},
		{"inherits damaged states", &owner{created: born, waitsFor: noShard, damaged: true}, released, standby,
			standby},
	} {
		g := newGroup(&logBuffer{})
		g.created = born
		g.apply(0, event{what: foldedAll})
		g.apply(2, event{what: acquired})
		o := tt.owner
		o.shard = 2
		g.shards[2].owner = o
		g.ownerEnded(o, tt.end, false)
		if got, other := g.stateOf(2), g.stateOf(0); got != tt.want || other != tt.other {
			t.Errorf("%s: shard 2 is %s, shard 0 %s; want %s and %s", tt.name, got, other, tt.want, tt.other)
		}
	}
}

// TestOwnedSupersedes: shards of the newest generation that is restored have inherited what those before them hold.
func TestOwnedSupersedes(t *testing.T) {
	t.Parallel()
	first := schema.Topology{Generation: 1, Shards: 2}
	second := first.Next(2)
	third := second.Next(1)
	for _, tt := range []struct {
		name          string
		owned, loaded []int
		topology      schema.Topology
		current       []int
	}{
		{"one generation", []int{0, 1}, []int{0, 1}, first, []int{0, 1}},
		{"the next waits", []int{0, 1, 2, 3}, []int{0, 1}, second, []int{0, 1}},
		{"one has inherited", []int{0, 1, 2, 3}, []int{0, 1, 3}, second, []int{3}},
		{"all have", []int{0, 1, 2, 3}, []int{0, 1, 2, 3}, second, []int{2, 3}},
		{"of three generations", []int{1, 2, 4}, []int{1, 2, 4}, third, []int{4}},
		{"the last of three waits", []int{1, 2, 4}, []int{1, 2}, third, []int{2}},
		{"none is restored", []int{0}, nil, first, nil},
	} {
		g := newGroup(&logBuffer{})
		loaded := map[int]bool{}
		for _, shard := range tt.loaded {
			loaded[shard] = true
		}
		for _, shard := range tt.owned {
			o := &owner{shard: shard, topology: tt.topology}
			o.begin()
			if loaded[shard] {
				o.loaded.Store(new(Reader(&fakeReader{})))
			}
			g.shards[shard] = &shardStatus{owner: o}
		}
		var all, current []int
		for _, o := range g.Owned() {
			all = append(all, o.Shard)
			if !o.Superseded {
				current = append(current, o.Shard)
			}
		}
		if !slices.Equal(all, tt.loaded) || !slices.Equal(current, tt.current) {
			t.Errorf("%s: owned are %v, of which %v are current; want %v and %v", tt.name, all, current, tt.loaded,
				tt.current)
		}
	}
}
