package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gputap/gputap/cmd/internal/stub"
)

const (
	stubLibrary = "/gputap/bin/stub/libcuda.so.1"
	truths      = "/tmp/truth"
	pause       = 200 * time.Millisecond // between two programs of a lane
)

// lanes run side by side. The programs of a lane run one after the other, repeatedly.
var lanes = [][]string{
	{"rate --seconds 5 --rate 100"},
	{"rate --launches --seconds 5 --rate 100"},
	{"copies", "leak3", "train", "procs4", "launches --count 50", "expandable", "threads5", "every"},
}

// holder runs during the whole boot: it holds memory and exits with some of it unfreed.
const holder = "leak3 --steps"

// startPrograms starts the holder and the lanes. end waits until every program has ended by itself.
func (h *host) startPrograms() (end func()) {
	var group sync.WaitGroup
	ending := make(chan struct{})
	held, release := io.Pipe() // the holder continues to its end when it can read on
	group.Go(func() { h.runProgram(holder, held) })
	for _, lane := range lanes {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ending:
					return
				case <-time.After(pause):
				}
				h.runProgram(lane[i%len(lane)], nil)
			}
		})
	}
	return func() {
		close(ending)
		_ = release.Close()
		group.Wait()
	}
}

// runProgram runs one program, and reports its calls while it runs and after it has ended.
func (h *host) runProgram(args string, stdin io.Reader) {
	r := program{Number: int(h.programs.Add(1)), Args: args, Began: time.Now()}
	truth := filepath.Join(truths, strconv.Itoa(r.Number))
	ended := make(chan error, 1)
	go func() { ended <- runWorkload(args, truth, stdin) }()
	for tick := time.NewTicker(reportInterval); r.Ended.IsZero(); {
		var failed error
		select {
		case failed = <-ended:
			r.Ended = time.Now()
		case <-tick.C:
		}
		images, err := stub.Images(truth)
		if err := errors.Join(failed, err); err != nil {
			r.Error = err.Error()
		}
		r.Images = images
		h.send(report{Program: &r})
	}
	_ = os.RemoveAll(truth)
}

func runWorkload(args, truth string, stdin io.Reader) error {
	if err := os.MkdirAll(truth, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("/gputap/bin/workload", strings.Fields(args)...)
	cmd.Env = []string{"GPUTAP_STUB_TRUTH=" + truth}
	cmd.Stdin = stdin
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}
