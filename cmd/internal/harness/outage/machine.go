package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/guest"
	"github.com/gputap/gputap/cmd/internal/stub"
)

// modules are the kernel modules for a disk and a network card of qemu, in the order of loading.
var modules = []string{
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
	"drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "drivers/block/virtio_blk",
	"net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net",
}

const diskSize = "4G" // sparse

// machine is the guest as seen from outside. Its log is the console of Linux.
type machine struct {
	cluster.Process
	reports net.Listener
	fail    context.CancelCauseFunc // ends the run

	mu       sync.Mutex
	conn     net.Conn // with the last boot
	boots    []string // boot ids
	shut     string   // id of the last boot that shut down in order
	outbox   int      // batches
	outboxAt time.Time
	behind   map[string]time.Duration // by boot: how far the guest's clock is behind this machine's, at most
	programs map[programID]*program
}

type programID struct {
	boot   string
	number int
}

// newMachine creates the disk and the initramfs. Each boot gets a qemu process of its own: it is slow after a reset,
// because it must translate code again.
func newMachine(w *cluster.Workspace, natsURL string, fail context.CancelCauseFunc) (*machine, error) {
	reports, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.Cleanup(func() { _ = reports.Close() })
	m := &machine{
		reports: reports, fail: fail, programs: map[programID]*program{}, behind: map[string]time.Duration{},
	}
	go m.serve()
	image, err := guest.Debian12.Image()
	if err != nil {
		return nil, err
	}
	// qemu's user network maps 10.0.2.2 to this machine.
	cmdline := strings.ReplaceAll(fmt.Sprintf("%s=%s %s=%s", envNATS, natsURL, envReports, reports.Addr()),
		"127.0.0.1", "10.0.2.2")
	m.Process = cluster.Process{Name: "guest", Args: guest.Qemu(image, w.Path("initramfs"), cmdline,
		"-drive", "if=virtio,format=raw,file="+w.Path("disk"), "-nic", "user,model=virtio-net-pci")}
	files := map[string]string{"gputap/bin/gputap-producer": w.Program("gputap-producer")}
	for i, name := range modules {
		path, err := guest.Debian12.Module(name)
		if err != nil {
			return nil, err
		}
		files[fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path))] = path
	}
	if err := guest.Pack(w.Path("initramfs"), files); err != nil {
		return nil, fmt.Errorf("create the initramfs: %w", err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", w.Path("disk"), diskSize).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s (apt-get install e2fsprogs)", err, out)
	}
	return m, nil
}

// serve takes the reports of each boot.
func (m *machine) serve() {
	for {
		conn, err := m.reports.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conn = conn
		m.mu.Unlock()
		go func() {
			defer conn.Close()
			for reports := json.NewDecoder(conn); ; {
				var r report
				if reports.Decode(&r) != nil {
					return // the boot has ended
				}
				m.receive(&r)
			}
		}()
	}
}

func (m *machine) receive(r *report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.Failed != "":
		m.fail(fmt.Errorf("the guest failed: %s", r.Failed))
	case r.Ready:
		m.boots = append(m.boots, r.Boot)
	case r.Ended:
		m.shut = r.Boot
	case r.Outbox != nil:
		m.outbox, m.outboxAt = *r.Outbox, time.Now()
	case r.Program != nil:
		m.programs[programID{r.Boot, r.Program.Number}] = r.Program
	}
	late := time.Since(r.At)
	if least, known := m.behind[r.Boot]; !known || late < least {
		m.behind[r.Boot] = late
	}
}

// until waits until met returns true, which it calls with mu held. The error says what else.
func (m *machine) until(ctx context.Context, within time.Duration, otherwise string, met func() bool) error {
	return cluster.Until(ctx, within, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !met() {
			return fmt.Errorf("%s (see %s)", otherwise, m.Log())
		}
		return nil
	})
}

// shutDown lets the host end its programs and the producer in order, and turn itself off.
func (m *machine) shutDown(ctx context.Context) error {
	m.mu.Lock()
	conn := m.conn
	m.mu.Unlock()
	if _, err := conn.Write([]byte(wordEnd)); err != nil {
		return err
	}
	return m.until(ctx, bootLimit, "the host has not shut down in order", func() bool {
		return m.shut == m.boots[len(m.boots)-1] && !m.Running()
	})
}

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
