package main

import (
	"bytes"
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

// programs are those of one boot.
type programs struct {
	host    *host
	group   sync.WaitGroup
	ending  chan struct{}
	release io.Closer // lets the holder continue to its end

	mu      sync.Mutex
	number  int
	running map[int]*program
}

func startPrograms(h *host) *programs {
	p := &programs{host: h, ending: make(chan struct{}), running: map[int]*program{}}
	held, release := io.Pipe()
	p.release = release
	p.group.Go(func() { p.run(holder, held) })
	for _, lane := range lanes {
		p.group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-p.ending:
					return
				case <-time.After(pause):
				}
				p.run(lane[i%len(lane)], nil)
			}
		})
	}
	return p
}

// end waits until every program has ended by itself.
func (p *programs) end() {
	close(p.ending)
	_ = p.release.Close()
	p.group.Wait()
}

// run runs one program and reports its calls.
func (p *programs) run(args string, stdin io.Reader) {
	p.mu.Lock()
	p.number++
	r := &program{Number: p.number, Args: args, Began: time.Now()}
	p.running[r.Number] = r
	p.mu.Unlock()
	err := os.MkdirAll(r.truth(), 0o755)
	if err == nil {
		var output bytes.Buffer
		cmd := exec.Command("/gputap/bin/workload", strings.Fields(args)...)
		cmd.Env = []string{"GPUTAP_STUB_TRUTH=" + r.truth()}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &output, &output
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("%w: %s", err, &output)
		}
	}
	ended := time.Now()
	images, failed := stub.Images(r.truth())
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, r.Number)
	r.Ended, r.Images = ended, images
	if err = errors.Join(err, failed); err != nil {
		r.Error = err.Error()
	}
	p.host.send(report{Program: r})
	_ = os.RemoveAll(r.truth())
}

// truth is the directory in which the stub counts the program's calls.
func (r *program) truth() string { return filepath.Join(truths, strconv.Itoa(r.Number)) }

// report reports the calls of the running programs so far.
func (p *programs) report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		if images, err := stub.Images(r.truth()); err == nil {
			r.Images = images
			p.host.send(report{Program: r})
		}
	}
}
