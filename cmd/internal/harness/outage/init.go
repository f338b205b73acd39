package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/guest"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
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
	serial   *os.File // reports to this program's other half
	producer *cluster.Process

	mu sync.Mutex // one report at a time
}

// initMain is the init process: it boots the host, and shuts it down when it receives wordEnd.
func initMain() {
	h := &host{}
	if err := h.run(); err != nil {
		h.send(report{Failed: err.Error()})
		fmt.Println(err)
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
	programs := startPrograms(h)
	if err := h.reportUntilEnd(programs); err != nil {
		return err
	}
	programs.end()
	if err := h.producer.Stop(syscall.SIGTERM, endLimit); err != nil {
		return err
	}
	if err := syscall.Unmount("/disk", 0); err != nil {
		return fmt.Errorf("unmount the disk: %w", err)
	}
	h.send(report{Ended: true})
	return unix.IoctlSetInt(int(h.serial.Fd()), unix.TCSBRK, 1) // waits until the report is sent
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
	if err := h.openSerial(); err != nil {
		return err
	}
	if err := guest.Load("/modules"); err != nil {
		return err
	}
	if err := errors.Join(guest.Address("lo", [4]byte{127, 0, 0, 1}),
		guest.Address("eth0", [4]byte{10, 0, 2, 15})); err != nil {
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

// openSerial opens the second serial port in raw mode: no echo, no conversion of line ends.
func (h *host) openSerial() error {
	f, err := os.OpenFile("/dev/ttyS1", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	h.serial = f
	_, err = term.MakeRaw(int(f.Fd()))
	return err
}

func (h *host) send(r report) {
	if h.serial == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.At, r.Boot = time.Now(), h.boot
	text, err := json.Marshal(r)
	if err == nil {
		_, err = h.serial.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Println("write a report:", err)
	}
}

// startProducer returns once the stub has its probes: programs that start later are traced from their first call.
func (h *host) startProducer() error {
	h.producer = &cluster.Process{Name: "gputap-producer", Dir: "/disk", Args: []string{
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
	page, err := scrape.Get("http://"+metrics+"/metrics", "gputap_producer_outbox_")
	if err != nil {
		return 0, err
	}
	batches, err := page.Require("gputap_producer_outbox_batches")
	return int(batches), err
}

const reportInterval = 500 * time.Millisecond

// reportUntilEnd reports programs and outbox until wordEnd arrives.
func (h *host) reportUntilEnd(programs *programs) error {
	end := make(chan struct{})
	go func() {
		defer close(end)
		for lines := bufio.NewScanner(h.serial); lines.Scan() && lines.Text() != wordEnd; {
		}
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
		programs.report()
		if batches, err := outboxBatches(); err == nil {
			h.send(report{Outbox: &batches})
		}
	}
}
