package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/guest"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
	"github.com/gputap/gputap/cmd/internal/stub"
)

const (
	clusterName = "outage"
	hostName    = "guest"
	metrics     = "127.0.0.1:9401"
	attachLimit = 5 * time.Minute // qemu emulates each instruction, on a busy machine
	endLimit    = 5 * time.Minute // probes are detached one by one
)

// host is the guest as its init process sees it.
type host struct {
	boot     string
	conn     net.Conn // to this program's other half
	producer *cluster.Process

	programs atomic.Int64 // that were started
	mu       sync.Mutex   // one report at a time
}

// initMain is the init process: it boots the host, and shuts it down when it receives wordEnd.
func initMain() {
	h := &host{}
	if err := h.run(); err != nil {
		fmt.Println(err)
		if h.conn != nil {
			h.send(report{Failed: err.Error()})
		}
	}
	if h.conn != nil {
		_ = h.conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, h.conn) // until the other half has read everything
	}
	guest.PowerOff()
}

// run is one boot.
func (h *host) run() error {
	if err := h.setUp(); err != nil {
		return err
	}
	if err := h.startProducer(); err != nil {
		return err
	}
	h.send(report{Ready: true})
	endPrograms := h.startPrograms()
	if err := h.reportUntilEnd(); err != nil {
		return err
	}
	endPrograms()
	if err := h.producer.Stop(syscall.SIGTERM, endLimit); err != nil {
		return err
	}
	if err := syscall.Unmount("/disk", 0); err != nil {
		return fmt.Errorf("unmount the disk: %w", err)
	}
	h.send(report{Ended: true})
	return nil
}

func (h *host) setUp() error {
	if err := guest.Mount(); err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	h.boot = strings.TrimSpace(string(boot))
	if err := guest.Load("/modules"); err != nil {
		return err
	}
	if err := errors.Join(guest.Address("lo", [4]byte{127, 0, 0, 1}),
		guest.Address("eth0", [4]byte{10, 0, 2, 15})); err != nil {
		return err
	}
	if h.conn, err = net.Dial("tcp", os.Getenv(envReports)); err != nil {
		return err
	}
	if err := os.MkdirAll("/disk", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("/dev/vda", "/disk", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return nil
}

func (h *host) send(r report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.At, r.Boot = time.Now(), h.boot
	if err := json.NewEncoder(h.conn).Encode(r); err != nil {
		fmt.Println("send a report:", err)
	}
}

// startProducer returns once the stub has its probes: programs that start later are traced from their first call.
func (h *host) startProducer() error {
	h.producer = &cluster.Process{Name: "gputap-producer", Dir: "/tmp", Args: []string{
		"/gputap/bin/gputap-producer", "--nats.url", os.Getenv(envNATS), "--producer.cluster", clusterName,
		"--producer.host", hostName, "--library", stubLibrary, "--outbox", "/disk/outbox",
		"--metrics.addr", metrics, "--log.format", "text",
	}}
	if err := h.producer.Start(); err != nil {
		return err
	}
	return cluster.Until(context.Background(), attachLimit, func() error {
		_, err := outboxBatches()
		return err
	})
}

// outboxBatches reads the number of batches in the outbox from the producer's metrics.
func outboxBatches() (int, error) {
	page, err := scrape.Get(metrics, "gputap_producer_outbox_batches")
	batches, known := page["gputap_producer_outbox_batches"]
	if err == nil && !known {
		err = errors.New("the producer reports no outbox")
	}
	return int(batches), err
}

const reportInterval = 500 * time.Millisecond

// reportUntilEnd reports the outbox until wordEnd arrives.
func (h *host) reportUntilEnd() error {
	end := make(chan struct{})
	go func() {
		defer close(end)
		_, _ = h.conn.Read(make([]byte, len(wordEnd)))
	}()
	for tick := time.NewTicker(reportInterval); ; {
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
		if err := cluster.CheckRunning(h.producer); err != nil {
			return err
		}
		if batches, err := outboxBatches(); err == nil {
			h.send(report{Outbox: &batches})
		}
	}
}

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
