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

	"github.com/gputap/gputap/cmd/internal/harness/guest"
)

// modules are what the kernel lacks to see a disk and a network card of qemu, in the order of loading.
var modules = []string{
	"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci_modern_dev",
	"drivers/virtio/virtio_pci", "drivers/block/virtio_blk", "net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net",
}

const diskBytes = 4 << 30 // sparse

// machine is the guest, from the outside.
type machine struct {
	dir, accel, image string
	cmdline           string

	qemu  *exec.Cmd
	stdin io.WriteCloser
	ended chan error // of qemu

	mu       sync.Mutex
	boots    []string // boot ids
	last     string   // the last boot that ended in order
	failed   error
	outbox   outbox
	outboxAt time.Time                // of our clock
	behind   map[string]time.Duration // by boot: how far the guest's clock is behind ours, at most
	programs map[programID]*program
}

type programID struct {
	boot   string
	number int
}

// newMachine makes the disk and the initramfs.
func newMachine(ctx context.Context, dir, accel, bus string, rate int) (*machine, error) {
	cache, err := filepath.Abs("bin/oldlinux")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	m := &machine{
		dir: dir, accel: accel, cmdline: fmt.Sprintf("%s%s %s%d", argBus, bus, argRate, rate), programs: map[programID]*program{},
		behind: map[string]time.Duration{},
	}
	if m.image, err = guest.Debian12.Image(cache); err != nil {
		return nil, err
	}
	if accel == "auto" {
		m.accel = guest.Accel(ctx, m.image)
	}
	if err := m.pack(cache); err != nil {
		return nil, fmt.Errorf("make the initramfs: %w", err)
	}
	disk, err := os.Create(m.path("disk"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(disk.Truncate(diskBytes), disk.Close()); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", m.path("disk")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s (apt-get install e2fsprogs)", err, out)
	}
	return m, nil
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) pack(cache string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{
		"init": self, "gputap/bin/gputap-producer": m.path("bin/gputap-producer"),
		"gputap/bin/workload": "bin/workload", "gputap/bin/stub/libcuda.so.1": "bin/stub/libcuda.so.1",
	}
	paths, err := guest.Debian12.Modules(cache, modules)
	if err != nil {
		return err
	}
	for i, path := range paths {
		files[fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path))] = path
	}
	if err := guest.Libraries("bin/workload", files); err != nil {
		return err
	}
	return guest.Pack(m.path("initramfs"), files)
}

// start turns the machine on, the first time or again: each boot has a qemu of its own, for one that emulates is slow after a
// reset, when memory that held code is written anew. What Linux prints is appended to the file console; the second serial port
// is the line.
func (m *machine) start(ctx context.Context) error {
	m.qemu = guest.Qemu(ctx, m.accel, m.image, m.path("initramfs"), m.cmdline,
		"-chardev", "file,id=console,append=on,path="+m.path("console"), "-serial", "chardev:console", "-serial", "stdio",
		"-drive", "if=virtio,format=raw,file="+m.path("disk"), "-nic", "user,model=virtio-net-pci")
	m.qemu.Stderr = os.Stderr
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if m.stdin, err = m.qemu.StdinPipe(); err != nil {
		return err
	}
	stdout, err := m.qemu.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.qemu.Start(); err != nil {
		return fmt.Errorf("%w (apt-get install qemu-system-x86)", err)
	}
	m.ended = make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			m.hear(lines.Bytes())
		}
		m.ended <- m.qemu.Wait()
	}()
	return nil
}

// hear takes one line up. What the firmware prints is none.
func (m *machine) hear(text []byte) {
	if len(text) == 0 || text[0] != '{' {
		return
	}
	var l line
	err := json.Unmarshal(text, &l)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		m.failed = fmt.Errorf("the guest said %q: %w", text, err)
		return
	case l.Failed != "":
		m.failed = fmt.Errorf("the guest: %s", l.Failed)
	case l.Ready:
		m.boots = append(m.boots, l.Boot)
	case l.Ended:
		m.last = l.Boot
	case l.Outbox != nil:
		m.outbox, m.outboxAt = *l.Outbox, time.Now()
	case l.Program != nil:
		m.programs[programID{l.Boot, l.Program.Number}] = l.Program
	}
	late := time.Since(l.At)
	if least, known := m.behind[l.Boot]; !known || late < least {
		m.behind[l.Boot] = late
	}
}

// shutDown lets its host end all in order, and turns it off.
func (m *machine) shutDown(ctx context.Context) error {
	m.mu.Lock()
	boot := m.boots[len(m.boots)-1]
	m.mu.Unlock()
	if _, err := io.WriteString(m.stdin, wordEnd+"\n"); err != nil {
		return err
	}
	if err := m.until(ctx, bootLimit, "its host has shut down", func() bool { return m.last == boot }); err != nil {
		return err
	}
	select {
	case err := <-m.ended:
		m.ended <- err // for cut
		return err
	case <-time.After(bootLimit):
		return fmt.Errorf("qemu does not end (see %s)", m.path("console"))
	}
}

// cut takes its power away, if it has any.
func (m *machine) cut() {
	if m.qemu.Process == nil {
		return
	}
	_ = m.qemu.Process.Kill()
	<-m.ended
}

// until waits for what the guest says; is is called with mu held.
func (m *machine) until(ctx context.Context, within time.Duration, what string, is func() bool) error {
	deadline := time.After(within)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for off := false; ; {
		m.mu.Lock()
		failed, yes := m.failed, is()
		m.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case yes:
			return nil
		case off:
			return fmt.Errorf("qemu ended before %s (see %s)", what, m.path("console"))
		}
		select {
		case <-tick.C:
		case err := <-m.ended:
			m.ended <- err // for cut
			off = true     // and all lines were read before
		case <-deadline:
			return fmt.Errorf("not within %s: %s (see %s)", within, what, m.path("console"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waiting is what waits in the outbox, as far as the guest has said.
func (m *machine) waiting() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("outbox: %d batches, files of %d bytes", m.outbox.Batches, m.outbox.Bytes)
}
