package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/cluster"
	"github.com/gputap/gputap/cmd/internal/stub"
)

// lanes are the programs that run beside each other, those of a lane one after the other, again and again.
var lanes = [][]string{
	{"rate --seconds 5 --rate 100"},
	{"rate --launches --seconds 5 --rate 100"},
	{"leak3", "copies", "train", "procs4", "launches --count 50", "expandable", "threads5", every},
}

const (
	every  = "every" // calls what the oldest producer does not know: not run while that one watches
	holder = "leak3 --steps"
	pause  = 200 * time.Millisecond // between two programs of a lane
)

// program is one run of bin/workload.
type program struct {
	name         string
	dir          string // of its truth
	began, ended time.Time
	killed       bool
	images       []stub.Image

	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  bytes.Buffer
}

// programs runs them until end.
type programs struct {
	dir      string
	simple   atomic.Bool // without every
	group    sync.WaitGroup
	ending   chan struct{}
	endOnce  sync.Once
	mu       sync.Mutex
	all      []*program
	failures []error
}

func startPrograms(dir string) *programs {
	p := &programs{dir: dir, ending: make(chan struct{})}
	p.simple.Store(true)
	for _, lane := range lanes {
		p.group.Go(func() { p.lane(lane) })
	}
	return p
}

func (p *programs) lane(list []string) {
	for i := 0; ; i++ {
		select {
		case <-p.ending:
			return
		case <-time.After(pause):
		}
		name := list[i%len(list)]
		if name == every && p.simple.Load() {
			continue
		}
		r, err := p.start(name)
		if err == nil {
			err = p.wait(r)
		}
		if err != nil {
			p.fail(err)
			return
		}
	}
}

func (p *programs) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, err)
}

// end lets each lane come to its end.
func (p *programs) end() error {
	p.endOnce.Do(func() { close(p.ending) })
	p.group.Wait()
	return errors.Join(p.failures...)
}

// start starts one, which waits at its steps for a line, if it has any.
func (p *programs) start(args string) (*program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &program{name: args, dir: filepath.Join(p.dir, strconv.Itoa(len(p.all)))}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	workload, err := filepath.Abs("bin/workload")
	if err != nil {
		return nil, err
	}
	r.cmd = exec.Command(workload, strings.Fields(args)...)
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = []string{"GPUTAP_STUB_TRUTH=" + r.dir}, &r.said, &r.said
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	r.began = time.Now()
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args, err)
	}
	p.all = append(p.all, r)
	return r, nil
}

// wait waits for its end and reads its truth.
func (p *programs) wait(r *program) error {
	err := r.cmd.Wait()
	ended := time.Now()
	if err != nil && !r.killed {
		return fmt.Errorf("workload %s: %w: %s", r.name, err, &r.said)
	}
	images, err := stub.Images(r.dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	r.ended, r.images = ended, images
	return err
}

// hold starts one that holds memory at its first step.
func (p *programs) hold(ctx context.Context) (*program, error) {
	r, err := p.start(holder)
	if err != nil {
		return nil, err
	}
	return r, cluster.Until(ctx, time.Minute, func() error {
		images, err := stub.Images(r.dir)
		if err == nil && (len(images) == 0 || images[0].Live != 3*8<<20) {
			err = errors.New("it does not hold its memory yet")
		}
		return err
	})
}

// letGo has a held one free what it frees, and end.
func (p *programs) letGo(r *program) error {
	_ = r.stdin.Close()
	return p.wait(r)
}

// kill ends a held one at once.
func (p *programs) kill(r *program) error {
	r.killed = true
	_ = r.cmd.Process.Kill()
	return p.wait(r)
}

// crowd starts programs of 0.1 s, one soon after the other; the first ones are about to end then.
func (p *programs) crowd() (wait func() error, err error) {
	var crowd []*program
	wait = func() error {
		var failures []error
		for _, r := range crowd {
			failures = append(failures, p.wait(r))
		}
		return errors.Join(failures...)
	}
	for range 20 {
		r, err := p.start("copies")
		if err != nil {
			return nil, errors.Join(err, wait())
		}
		crowd = append(crowd, r)
		time.Sleep(5 * time.Millisecond)
	}
	return wait, nil
}

// close ends what is left of a run that failed.
func (p *programs) close() {
	p.endOnce.Do(func() { close(p.ending) })
	p.mu.Lock()
	for _, r := range p.all {
		if r.ended.IsZero() {
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		}
	}
	p.mu.Unlock()
	p.group.Wait()
}
