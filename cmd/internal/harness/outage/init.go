package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/cmd/internal/harness/guest"
	"github.com/gputap/gputap/cmd/internal/harness/scrape"
)

const (
	metrics     = "127.0.0.1:9401"
	attachLimit = 5 * time.Minute // qemu may emulate each instruction, on a busy machine
	endLimit    = 5 * time.Minute // probes are detached one by one
)

// host is the guest as its init process sees it.
type host struct {
	boot     string
	serial   *os.File // reports to this program's other half
	producer *exec.Cmd
	ended    chan error // of the producer

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
	if err := h.endProducer(); err != nil {
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
	if err := errors.Join(guest.Address("lo", [4]byte{127, 0, 0, 1}, 8),
		guest.Address("eth0", [4]byte{10, 0, 2, 15}, 24)); err != nil {
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
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	h.serial = f
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
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

// argument returns the value of an argument of the Linux command line.
func argument(name string) string {
	text, _ := os.ReadFile("/proc/cmdline")
	for _, word := range strings.Fields(string(text)) {
		if value, ok := strings.CutPrefix(word, name); ok {
			return value
		}
	}
	return ""
}

// startProducer returns once the stub has its probes: programs that start later are traced from their first call.
func (h *host) startProducer() error {
	h.producer = exec.Command("/gputap/bin/gputap-producer", "--nats.url", argument(argNATS),
		"--producer.cluster", clusterName, "--producer.host", hostName, "--library", stubLibrary,
		"--outbox", "/disk/outbox", "--metrics.addr", metrics, "--log.format", "text")
	h.producer.Stdout, h.producer.Stderr = os.Stdout, os.Stderr
	if err := h.producer.Start(); err != nil {
		return err
	}
	h.ended = make(chan error, 1)
	go func() { h.ended <- h.producer.Wait() }()
	for deadline := time.Now().Add(attachLimit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if _, err := outboxOf(metrics); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the producer has not attached its probes within %s", attachLimit)
}

// outboxOf reads the producer's metrics.
func outboxOf(addr string) (*outbox, error) {
	page, err := scrape.Get("http://"+addr+"/metrics", "gputap_producer_outbox_")
	if err != nil {
		return nil, err
	}
	batches, err := page.Require("gputap_producer_outbox_batches")
	return &outbox{int(batches), int64(page.Sum("gputap_producer_outbox_bytes"))}, err
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
		case err := <-h.ended:
			return fmt.Errorf("the producer ended by itself: %w", err)
		case <-tick.C:
		}
		programs.report()
		if o, err := outboxOf(metrics); err == nil {
			h.send(report{Outbox: o})
		}
	}
}

// endProducer stops the producer as a service manager would.
func (h *host) endProducer() error {
	if err := h.producer.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-h.ended:
		if err != nil {
			return fmt.Errorf("stop the producer: %w", err)
		}
		return nil
	case <-time.After(endLimit):
		return fmt.Errorf("stop the producer: it still runs after %s", endLimit)
	}
}
