package main

import (
	"time"

	"github.com/gputap/gputap/cmd/internal/stub"
)

// report is one JSON object, which the guest sends over TCP. Times are of the guest's clock.
type report struct {
	At      time.Time `json:"at"`
	Boot    string    `json:"boot"`              // boot id
	Ready   bool      `json:"ready,omitempty"`   // the producer is attached, and programs start
	Ended   bool      `json:"ended,omitempty"`   // the producer has ended, and the disk is unmounted
	Failed  string    `json:"failed,omitempty"`  // the guest has failed; nothing follows
	Outbox  *int      `json:"outbox,omitempty"`  // batches in it, from the producer's metrics
	Program *program  `json:"program,omitempty"` // repeated while the program runs
}

// program is one run of bin/workload, with the stub's counts so far.
type program struct {
	Number int          `json:"n"` // within its boot
	Args   string       `json:"args"`
	Began  time.Time    `json:"began"`           // before it was started
	Ended  time.Time    `json:"ended,omitzero"`  // after it had ended; zero while it runs
	Error  string       `json:"error,omitempty"` // empty: exit status 0
	Images []stub.Image `json:"images"`
}

// wordEnd is sent to the guest and asks it to shut down.
const wordEnd = "end"

// Variables of the init process, to which Linux passes unknown arguments of its command line.
const (
	envNATS    = "NATS_URL"
	envReports = "REPORTS" // address that takes reports
)
