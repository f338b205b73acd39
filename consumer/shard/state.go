package shard

import "time"

// state is that of one shard in one instance. next is the only place that changes it.
//
//	standby ──► the next generation has taken it over ──► finished
//	   ▲                                                     ▲
//	   ├── another instance holds the lease ──► free ────────┤
//	   │                                              │      │
//	   │                                              │ lease acquired
//	   │ released, fenced, lease lost, error          ▼      │
//	   ├──────────────────────────────────────── claiming    │
//	   │                                              │ manifest written
//	   │                                              ▼      │
//	   ├──────────────────────────────────────── restoring ──┼──► waiting: the generation before is not folded yet
//	   │                                              │      │       (claimed again like a free shard)
//	   │                                              │ state restored or inherited
//	   │                                              ▼      │    refused: a newer program saved the state
//	   ├──────────────────────────────────────── owning ─────┤       (rebuilt if no newer instance claims it)
//	   │                                              │ another instance is preferred
//	   │                                              ▼      │ closed and folded to its end
//	   └──────────────────────────────────────── draining ───┘
type state uint8

const (
	standby   state = iota // another instance holds the lease, or this one has not looked yet
	free                   // nobody holds the lease
	claiming               // this instance holds the lease and writes a manifest that fences earlier owners
	restoring              // loads the checkpoint, or inherits from the generation before
	owning                 // folds and writes checkpoints
	draining               // writes the last checkpoint for another instance
	waiting                // released until the generation before is folded to its end
	refused                // released because a newer program saved the state
	finished               // folded to its end, or taken over by the next generation; nobody needs to own it again
)

var stateWords = [...]string{
	standby: "standby", free: "free", claiming: "claiming", restoring: "restoring", owning: "owning",
	draining: "draining", waiting: "waiting", refused: "refused", finished: "finished",
}

func (s state) String() string { return stateWords[s] }

// held reports whether this instance holds the shard's lease.
func (s state) held() bool { return s >= claiming && s <= draining }

// status is the state of one shard in one instance.
type status struct {
	state state
	// since is, of a held shard, when another instance became the preferred one, or zero; of a free, waiting or refused
	// one, since when nobody has held the lease.
	since        time.Time
	waitingSince time.Time // since when claims have failed because of the generation before
}

type eventKind uint8

const (
	looked       eventKind = iota // the instance has read the leases
	acquired                      // the lease
	claimed                       // the manifest is written
	restored                      // the state is restored and folding begins
	released                      // the ownership ended for any other reason than the following
	foldedAll                     // the ownership ended: the closed shard is folded to its end
	mustWait                      // the ownership ended: the generation before is not folded to its end
	foundNewer                    // the ownership ended: a newer program saved the state
	wasTakenOver                  // the next generation has taken the shard over
	reopened                      // states of a finished generation are gone or damaged: it must be owned again
)

// event is an input of the state machine.
type event struct {
	what eventKind

	// of looked:
	holder    string // instance that holds the lease; "": none
	self      bool   // holder is this instance
	preferred bool   // this instance should own the shard
}

// action is the output of the state machine.
type action uint8

const (
	doNothing action = iota
	claim            // acquire the lease and claim the shard
	rebuild          // claim the shard and rebuild a state that a newer program saved
	handOver         // end the ownership with a last checkpoint
)

// limits are the times that decide transitions.
type limits struct {
	settle  time.Duration // how long another instance must be preferred before it gets the shard
	ttl     time.Duration // of a lease
	rebuild time.Duration // how long nobody must hold a shard with a state of a newer program before it is rebuilt
}

// next returns the status after an event, and what to do.
func (s status) next(e event, now time.Time, l limits) (status, action) {
	switch e.what {
	case looked:
		return s.look(e, now, l)
	case acquired:
		return status{state: claiming, waitingSince: s.waitingSince}, doNothing
	case claimed, restored:
		if s.state == draining {
			return s, doNothing
		}
		if e.what == claimed {
			s.state = restoring
			return s, doNothing
		}
		return status{state: owning, since: s.since}, doNothing
	case foldedAll:
		return status{state: finished}, doNothing
	case mustWait:
		if s.waitingSince.IsZero() {
			s.waitingSince = now
		}
		return status{state: waiting, since: now, waitingSince: s.waitingSince}, doNothing
	case foundNewer:
		return status{state: refused, since: now}, doNothing
	case wasTakenOver:
		if s.state.held() { // its owner finds out when it is folded to its end
			return s, doNothing
		}
		return status{state: finished}, doNothing
	case reopened:
		if s.state != finished {
			return s, doNothing
		}
	}
	return status{}, doNothing
}

// look decides after a look at the leases.
func (s status) look(e event, now time.Time, l limits) (status, action) {
	switch {
	case s.state == finished, s.state == draining:
		return s, doNothing
	case s.state.held() && e.preferred:
		s.since = time.Time{}
		return s, doNothing
	case s.state.held():
		if s.since.IsZero() {
			s.since = now
		}
		if now.Sub(s.since) < l.settle {
			return s, doNothing
		}
		s.state = draining
		return s, handOver
	case s.state == refused && e.holder != "":
		s.since = now
		return s, doNothing
	case s.state == refused:
		if e.preferred && now.Sub(s.since) >= l.rebuild {
			return s, rebuild
		}
		return s, doNothing
	case e.self: // a lease of an ownership that has just ended
		s.since = now
		return s, doNothing
	case e.holder != "":
		return status{state: standby}, doNothing
	}
	if s.state != free && s.state != waiting {
		s = status{state: free, since: now}
	}
	if e.preferred || now.Sub(s.since) > 2*l.ttl { // the preferred instance may be unable to claim it
		return s, claim
	}
	return s, doNothing
}
