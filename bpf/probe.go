package bpf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// HaveMulti reports whether Linux has uprobe_multi, which came with 6.6.
func HaveMulti() bool { return features.HaveBPFLinkUprobeMulti() == nil }

// forPerfEvents changes the programs to plain uprobes, the only type that a perf event accepts.
func forPerfEvents(spec *ebpf.CollectionSpec) {
	for _, p := range spec.Programs {
		if p.AttachType == ebpf.AttachTraceUprobeMulti {
			p.AttachType = ebpf.AttachNone
		}
	}
}

// Side says whether a program runs at the entry or the return of a function.
type Side bool

// Sides of a function.
const (
	Entry  Side = false
	Return Side = true
)

// Probe attaches a program to addresses of a file. Close detaches it.
func (t *Tap) Probe(ex *link.Executable, program string, side Side, at *link.UprobeMultiOptions) (io.Closer, error) {
	if !t.multi {
		return t.probeEach(ex, program, side, at)
	}
	attach := ex.UprobeMulti
	if side == Return {
		attach = ex.UretprobeMulti
	}
	l, err := attach(nil, t.coll.Programs[program], at)
	if err != nil {
		return nil, explain(err)
	}
	return l, nil
}

// perfProbe is one program at many addresses, with one perf event each. Detaching the program from an event is quick.
// Linux removes events one by one (20 to 90 ms each), so removal continues after Close, until Tap.Close returns.
// Meanwhile each address still costs a trap.
type perfProbe struct {
	links   []link.Link
	events  []*os.File // open, so that closing a link only detaches the program
	removal *sync.WaitGroup
}

func (t *Tap) probeEach(
	ex *link.Executable, program string, side Side, at *link.UprobeMultiOptions,
) (io.Closer, error) {
	attach := ex.Uprobe
	if side == Return {
		attach = ex.Uretprobe
	}
	p := &perfProbe{removal: &t.removal}
	for i, address := range at.Addresses {
		l, err := attach("", t.coll.Programs[program], &link.UprobeOptions{Address: address, Cookie: at.Cookies[i]})
		if err == nil {
			p.links = append(p.links, l)
			var event *os.File
			if event, err = l.(link.PerfEvent).PerfEvent(); err == nil { // each uprobe of one address is a perf event
				p.events = append(p.events, event)
			}
		}
		if err != nil {
			_ = p.Close()
			return nil, fmt.Errorf("perf event at %#x: %w", address, explainEvent(err))
		}
	}
	return p, nil
}

// explainEvent adds the remedy for perf events. They need CAP_SYS_ADMIN since Linux 6.16 and the stable releases of
// July 2025 (CVE-2025-38466); on Debian and Ubuntu also before, if kernel.perf_event_paranoid is above 2.
func explainEvent(err error) error {
	if !errors.Is(err, os.ErrPermission) {
		return explain(err)
	}
	return fmt.Errorf("%w (run as root or with CAP_SYS_ADMIN: Linux %s requires it for perf events; "+
		"Linux 6.6 and later does not)", err, Release())
}

// detachedAtOnce limits the threads that wait for Linux to detach a program.
const detachedAtOnce = 64

func (p *perfProbe) Close() error {
	var group sync.WaitGroup
	slots := make(chan struct{}, detachedAtOnce)
	for _, l := range p.links {
		slots <- struct{}{}
		group.Go(func() {
			_ = l.Close()
			<-slots
		})
	}
	group.Wait()
	p.removal.Go(func() {
		for _, event := range p.events {
			_ = event.Close()
		}
	})
	return nil
}
