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
	accel, image string
	cmdline      string

	qemu  *exec.Cmd
	stdin io.WriteCloser
	ended chan error // of qemu

	mu       sync.Mutex
	boots    []string // boot ids
	shut     string   // id of the last boot that shut down in order
	failed   error
	outbox   outbox
	outboxAt time.Time                // by this machine's clock
	behind   map[string]time.Duration // by boot: how far the guest's clock is behind this machine's, at most
	programs map[programID]*program
}

type programID struct {
	boot   string
	number int
}

// newMachine creates the disk and the initramfs.
func newMachine(ctx context.Context, w *cluster.Workspace, accel, natsURL string, rate int) (*machine, error) {
	cache, err := filepath.Abs("bin/oldlinux")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	m := &machine{
		Workspace: w, accel: accel, cmdline: fmt.Sprintf("%s%s %s%d", argNATS, natsURL, argRate, rate),
		programs: map[programID]*program{}, behind: map[string]time.Duration{},
	}
	if m.image, err = guest.Debian12.Image(cache); err != nil {
		return nil, err
	}
	if accel == "auto" {
		m.accel = guest.Accel(ctx, m.image)
	}
	if err := m.pack(cache); err != nil {
		return nil, fmt.Errorf("create the initramfs: %w", err)
	}
	disk, err := os.Create(m.Path("disk"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(disk.Truncate(diskBytes), disk.Close()); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", m.Path("disk")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s (apt-get install e2fsprogs)", err, out)
	}
	return m, nil
}

func (m *machine) pack(cache string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{
		"init": self, "gputap/bin/gputap-producer": m.Program("gputap-producer"),
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
	return guest.Pack(m.Path("initramfs"), files)
}

// start turns the machine on. Each boot has a qemu process of its own: an emulating one is slow after a reset, because
// it must translate code again. The console of Linux is appended to the file "console"; reports come from the second
// serial port.
func (m *machine) start(ctx context.Context) error {
	m.qemu = guest.Qemu(ctx, m.accel, m.image, m.Path("initramfs"), m.cmdline,
		"-chardev", "file,id=console,append=on,path="+m.Path("console"),
		"-serial", "chardev:console", "-serial", "stdio",
		"-drive", "if=virtio,format=raw,file="+m.Path("disk"), "-nic", "user,model=virtio-net-pci")
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
			m.receive(lines.Bytes())
		}
		m.ended <- m.qemu.Wait()
	}()
	return nil
}

// receive takes one report. Other lines are from the firmware.
func (m *machine) receive(text []byte) {
	if len(text) == 0 || text[0] != '{' {
		return
	}
	var r report
	err := json.Unmarshal(text, &r)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		m.failed = fmt.Errorf("parse the guest's report %q: %w", text, err)
		return
	case r.Failed != "":
		m.failed = fmt.Errorf("the guest failed: %s", r.Failed)
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

// shutDown lets the host end its programs and the producer in order, and turn itself off.
func (m *machine) shutDown(ctx context.Context) error {
	m.mu.Lock()
	boot := m.boots[len(m.boots)-1]
	m.mu.Unlock()
	if _, err := io.WriteString(m.stdin, wordEnd+"\n"); err != nil {
		return err
	}
	if err := m.until(ctx, bootLimit, "the host has shut down", func() bool { return m.shut == boot }); err != nil {
		return err
	}
	select {
	case err := <-m.ended:
		m.ended <- err // for cutPower
		return err
	case <-time.After(bootLimit):
		return fmt.Errorf("qemu still runs after the shutdown (see %s)", m.Path("console"))
	}
}

// cutPower kills qemu if it runs.
func (m *machine) cutPower() {
	if m.qemu.Process == nil {
		return
	}
	_ = m.qemu.Process.Kill()
	<-m.ended
}

// until waits until met returns true. It calls met with mu held.
func (m *machine) until(ctx context.Context, within time.Duration, what string, met func() bool) error {
	deadline := time.After(within)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for off := false; ; {
		m.mu.Lock()
		failed, yes := m.failed, met()
		m.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case yes:
			return nil
		case off:
			return fmt.Errorf("qemu ended before %s (see %s)", what, m.Path("console"))
		}
		select {
		case <-tick.C:
		case err := <-m.ended:
			m.ended <- err // for cutPower
			off = true     // all reports were read before
		case <-deadline:
			return fmt.Errorf("wait until %s: not within %s (see %s)", what, within, m.Path("console"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// backlog describes the content of the outbox by the last report.
func (m *machine) backlog() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("outbox: %d batches, %d bytes of files", m.outbox.Batches, m.outbox.Bytes)
}
