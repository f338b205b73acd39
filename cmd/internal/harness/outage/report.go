package main

import (
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/stub"
)

// line is what the guest says, one JSON object a line. Times are of its clock.
type line struct {
	At      time.Time `json:"at"`
	Boot    string    `json:"boot"`              // boot id
	Ready   bool      `json:"ready,omitempty"`   // the producer is attached: programs start
	Ended   bool      `json:"ended,omitempty"`   // the producer has ended and the disk is unmounted
	Failed  string    `json:"failed,omitempty"`  // nothing more comes
	Outbox  *outbox   `json:"outbox,omitempty"`  // as the producer's metrics say
	Program *program  `json:"program,omitempty"` // while it runs, again and again
}

type outbox struct {
	Batches int   `json:"batches"`
	Bytes   int64 `json:"bytes"`
}

// program is one run of bin/workload and what the stub has counted of it so far.
type program struct {
	Number int          `json:"n"` // in its boot
	Args   string       `json:"args"`
	Began  time.Time    `json:"began"`           // before it was started
	Ended  time.Time    `json:"ended,omitzero"`  // after it was waited for; zero while it runs
	Error  string       `json:"error,omitempty"` // how it ended, if not well
	Images []stub.Image `json:"images"`
}

// wordEnd is said to the guest: end all in order.
const wordEnd = "end"

// What the guest is told on the command line of its Linux.
const (
	argBus  = "outage.bus="
	argRate = "outage.rate="
)
