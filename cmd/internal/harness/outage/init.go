package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

const (
	metrics     = "127.0.0.1:9401"
	attachLimit = 5 * time.Minute // where qemu emulates each instruction, beside other work
	endLimit    = 5 * time.Minute // probes are taken away one by one
)

// host is the guest, from its inside.
type host struct {
	boot     string
	line     *os.File // to and from the outside
	producer *exec.Cmd
	ended    chan error // of the producer

	mu sync.Mutex // one line at a time
}

// first is the first process: it brings the host up, and shuts it down when it is told to.
func first() {
	h := &host{}
	if err := h.live(); err != nil {
		h.say(line{Failed: err.Error()})
		fmt.Println(err)
	}
	guest.PowerOff()
}

// live is one boot.
func (h *host) live() error {
	if err := h.setUp(); err != nil {
		return err
	}
	if err := h.startProducer(); err != nil {
		return err
	}
	h.say(line{Ready: true})
	programs := startPrograms(h)
	if err := h.listen(programs); err != nil {
		return err
	}
	programs.end()
	if err := h.endProducer(); err != nil {
		return err
	}
	if err := syscall.Unmount("/disk", 0); err != nil {
		return fmt.Errorf("unmount the disk: %w", err)
	}
	h.say(line{Ended: true})
	return unix.IoctlSetInt(int(h.line.Fd()), unix.TCSBRK, 1) // until it is told
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
	if err := h.openLine(); err != nil {
		return err
	}
	if err := guest.Load("/modules"); err != nil {
		return err
	}
	if err := errors.Join(guest.Address("lo", [4]byte{127, 0, 0, 1}, 8), guest.Address("eth0", [4]byte{10, 0, 2, 15}, 24)); err != nil {
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

// openLine takes the second serial port as it is: no echo, no end of line but ours.
func (h *host) openLine() error {
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
	h.line = f
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

func (h *host) say(l line) {
	if h.line == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.At, l.Boot = time.Now(), h.boot
	text, err := json.Marshal(l)
	if err == nil {
		_, err = h.line.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Println("say:", err)
	}
}

// argument is a word of the command line of Linux.
func argument(name string) string {
	text, _ := os.ReadFile("/proc/cmdline")
	for _, word := range strings.Fields(string(text)) {
		if value, ok := strings.CutPrefix(word, name); ok {
			return value
		}
	}
	return ""
}

// startProducer returns when the stub has its probes: programs that start from then on are seen from their first call.
func (h *host) startProducer() error {
	h.producer = exec.Command("/gputap/bin/gputap-producer", "--nats.url", argument(argBus), "--producer.cluster", clusterName, "--producer.host", hostName,
		"--library", stubLibrary, "--outbox", "/disk/outbox", "--metrics.addr", metrics, "--log.format", "text")
	h.producer.Stdout, h.producer.Stderr = os.Stdout, os.Stderr
	if err := h.producer.Start(); err != nil {
		return err
	}
	h.ended = make(chan error, 1)
	go func() { h.ended <- h.producer.Wait() }()
	for deadline := time.Now().Add(attachLimit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if _, err := scrape("gputap_producer_outbox_batches"); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the producer has no probes after %s", attachLimit)
}

// scrape reads one value of the producer's metrics.
func scrape(names ...string) (values []float64, err error) {
	response, err := (&http.Client{Timeout: 10 * time.Second}).Get("http://" + metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		_, rest, found := strings.Cut(string(page), "\n"+name+" ")
		text, _, _ := strings.Cut(rest, "\n")
		value, err := strconv.ParseFloat(text, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("no %s in the producer's metrics", name)
		}
		values = append(values, value)
	}
	return values, nil
}

const sayEvery = 500 * time.Millisecond

// listen waits for the word that ends the boot, and says meanwhile how things are.
func (h *host) listen(programs *programs) error {
	told := make(chan struct{})
	go func() {
		defer close(told)
		for lines := bufio.NewScanner(h.line); lines.Scan() && lines.Text() != wordEnd; {
		}
	}()
	for tick := time.NewTicker(sayEvery); ; {
		select {
		case <-told:
			return nil
		case err := <-h.ended:
			return fmt.Errorf("the producer has ended by itself: %w", err)
		case <-tick.C:
		}
		programs.say()
		if v, err := scrape("gputap_producer_outbox_batches", "gputap_producer_outbox_bytes"); err == nil {
			h.say(line{Outbox: &outbox{int(v[0]), int64(v[1])}})
		}
	}
}

// endProducer ends it as a service manager would.
func (h *host) endProducer() error {
	if err := h.producer.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-h.ended:
		if err != nil {
			return fmt.Errorf("the producer at its end: %w", err)
		}
		return nil
	case <-time.After(endLimit):
		return fmt.Errorf("the producer does not end within %s", endLimit)
	}
}
