package main

import (
	"bytes"
	"encoding/binary"
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
)

const (
	stubLibrary = "/gputap/bin/stub/libcuda.so.1"
	truths      = "/tmp/truth"
	pause       = 200 * time.Millisecond // between two programs of a lane
)

// lanes are the programs that run beside each other, those of a lane one after the other, again and again.
func lanes() [][]string {
	rate := "--seconds 5 --rate " + argument(argRate)
	return [][]string{
		{"rate " + rate},
		{"rate --launches " + rate},
		{"copies", "leak3", "train", "procs4", "launches --count 50", "expandable", "threads5", "every"},
	}
}

// holder runs as long as its boot: it holds memory, and leaves some of it at its end.
const holder = "leak3 --steps"

// programs are those of one boot.
type programs struct {
	host    *host
	group   sync.WaitGroup
	ending  chan struct{}
	release io.Closer // lets the holder go on

	mu      sync.Mutex
	number  int
	running map[int]*program
}

func startPrograms(h *host) *programs {
	p := &programs{host: h, ending: make(chan struct{}), running: map[int]*program{}}
	held, release := io.Pipe()
	p.release = release
	p.group.Go(func() { p.run(holder, held) })
	for _, lane := range lanes() {
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

// end lets each program come to its end.
func (p *programs) end() {
	close(p.ending)
	_ = p.release.Close()
	p.group.Wait()
}

// run runs one program and says what it did.
func (p *programs) run(args string, stdin io.Reader) {
	p.mu.Lock()
	p.number++
	r := &program{Number: p.number, Args: args, Began: time.Now()}
	p.running[r.Number] = r
	p.mu.Unlock()
	dir := filepath.Join(truths, strconv.Itoa(r.Number))
	var said bytes.Buffer
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		cmd := exec.Command("/gputap/bin/workload", strings.Fields(args)...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{"GPUTAP_STUB_TRUTH=" + dir}, stdin, &said, &said
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("%w: %s", err, &said)
		}
	}
	ended := time.Now()
	images, failed := readImages(dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, r.Number)
	r.Ended, r.Images = ended, images
	if err = errors.Join(err, failed); err != nil {
		r.Error = err.Error()
	}
	p.host.say(line{Program: r})
	_ = os.RemoveAll(dir)
}

// say says what those that run have done so far.
func (p *programs) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		images, err := readImages(filepath.Join(truths, strconv.Itoa(r.Number)))
		if err == nil {
			so := *r
			so.Images = images
			p.host.say(line{Program: &so})
		}
	}
}

// Where struct stub_truth of producer/testdata/stub.h has what is used here.
const (
	truthPID    = 12
	truthLive   = 16
	truthUsed   = 56
	truthCalls  = 64
	truthCall   = 80 // bytes of one
	truthSymbol = 48 // bytes; ok and failed are behind it
	truthBytes  = 39176
)

// readImages reads what the stub counted of the images of one program. Those that called nothing are left out.
func readImages(dir string) ([]image, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		return nil, err
	}
	var images []image
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if len(data) != truthBytes || string(data[:8]) != "GPUTRUTH" {
			continue // it begins
		}
		_, loaded, _ := strings.Cut(filepath.Base(name), ".")
		i := image{PID: binary.LittleEndian.Uint32(data[truthPID:]), Live: binary.LittleEndian.Uint64(data[truthLive:]), Calls: map[string]uint64{}}
		if i.Loaded, err = strconv.ParseUint(loaded, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for n := range binary.LittleEndian.Uint32(data[truthUsed:]) {
			at := data[truthCalls+truthCall*n:]
			symbol, _, _ := bytes.Cut(at[:truthSymbol], []byte{0})
			if calls := binary.LittleEndian.Uint64(at[truthSymbol:]) + binary.LittleEndian.Uint64(at[truthSymbol+8:]); calls > 0 {
				i.Calls[string(symbol)] = calls
			}
		}
		if len(i.Calls) > 0 {
			images = append(images, i)
		}
	}
	return images, nil
}
