package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gputap/gputap/cmd/internal/harness/cluster"
	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

// modules are the kernel modules for a disk and a network card of qemu, in the order of loading.
var modules = []string{
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
	"drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "drivers/block/virtio_blk",
	"net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net",
}

const diskBytes = 4 << 30 // sparse

// machine is the guest as seen from outside.
type machine struct {
	*cluster.Workspace
	image   string
	natsURL string

	qemu    *exec.Cmd
	stdin   io.Writer       // the guest's second serial port
	running context.Context // of one boot; its cause is why qemu ended, or what the guest failed at
	off     chan struct{}   // closed when qemu has ended

	mu       sync.Mutex
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

// newMachine creates the disk and the initramfs.
func newMachine(ctx context.Context, w *cluster.Workspace, natsURL string) (*machine, error) {
	m := &machine{
		Workspace: w, natsURL: natsURL, programs: map[programID]*program{}, behind: map[string]time.Duration{},
	}
	var err error
	if m.image, err = guest.Debian12.Image(); err != nil {
		return nil, err
	}
	files := map[string]string{"gputap/bin/gputap-producer": m.Program("gputap-producer")}
	paths, err := guest.Debian12.Modules(modules)
	if err != nil {
		return nil, err
	}
	for i, path := range paths {
		files[fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path))] = path
	}
	if err := guest.Pack(m.Path("initramfs"), files); err != nil {
		return nil, fmt.Errorf("create the initramfs: %w", err)
	}
	if err := errors.Join(os.WriteFile(m.Path("disk"), nil, 0o644), os.Truncate(m.Path("disk"), diskBytes)); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", m.Path("disk")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s (apt-get install e2fsprogs)", err, out)
	}
	return m, nil
}

// start turns the machine on. Each boot has a qemu process of its own: an emulating one is slow after a reset, because
// it must translate code again. The console of Linux is appended to the file "console"; reports come from the second
// serial port.
func (m *machine) start(ctx context.Context) error {
	qemu := guest.Qemu(ctx, m.image, m.Path("initramfs"), envNATS+"="+m.natsURL,
		"-chardev", "file,id=console,append=on,path="+m.Path("console"),
		"-serial", "chardev:console", "-serial", "stdio",
		"-drive", "if=virtio,format=raw,file="+m.Path("disk"), "-nic", "user,model=virtio-net-pci")
	qemu.Stderr = os.Stderr
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := qemu.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := qemu.StdoutPipe()
	if err != nil {
		return err
	}
	if err := qemu.Start(); err != nil {
		return fmt.Errorf("%w (apt-get install qemu-system-x86)", err)
	}
	running, end := context.WithCancelCause(ctx)
	off := make(chan struct{})
	m.qemu, m.stdin, m.running, m.off = qemu, stdin, running, off
	go func() {
		defer close(off)
		lines := bufio.NewScanner(stdout)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			if err := m.receive(lines.Bytes()); err != nil {
				end(err)
			}
		}
		_ = qemu.Wait()
		end(fmt.Errorf("qemu ended with %s (see %s)", qemu.ProcessState, m.Path("console")))
	}()
	return nil
}

// receive takes one report. Other lines are from the firmware.
func (m *machine) receive(text []byte) error {
	if len(text) == 0 || text[0] != '{' {
		return nil
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("parse the guest's report %q: %w", text, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.Failed != "":
		return fmt.Errorf("the guest failed: %s", r.Failed)
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
	return nil
}

// shutDown lets the host end its programs and the producer in order, and turn itself off.
func (m *machine) shutDown() error {
	if _, err := io.WriteString(m.stdin, wordEnd+"\n"); err != nil {
		return err
	}
	select {
	case <-m.off:
	case <-time.After(bootLimit):
		return fmt.Errorf("the host has not shut down within %s (see %s)", bootLimit, m.Path("console"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut != m.boots[len(m.boots)-1] {
		return fmt.Errorf("the host has not shut down in order: %w", context.Cause(m.running))
	}
	return nil
}

// cutPower kills qemu if it runs.
func (m *machine) cutPower() {
	if m.off != nil {
		_ = m.qemu.Process.Kill()
		<-m.off
	}
}

// until waits until met returns true, which it calls with mu held. The error says what else.
func (m *machine) until(within time.Duration, otherwise string, met func() bool) error {
	return cluster.Until(m.running, within, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !met() {
			return fmt.Errorf("%s (see %s)", otherwise, m.Path("console"))
		}
		return nil
	})
}

// programEnded reports whether a program has ended. It is called with mu held.
func (m *machine) programEnded() bool {
	for _, p := range m.programs {
		if !p.Ended.IsZero() {
			return true
		}
	}
	return false
}

// backlog returns the number of batches in the outbox by the last report.
func (m *machine) backlog() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outbox
}
