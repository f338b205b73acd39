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

// forPerfEvents makes plain uprobes of the programs: a perf event takes no other.
func forPerfEvents(spec *ebpf.CollectionSpec) {
	for _, p := range spec.Programs {
		if p.AttachType == ebpf.AttachTraceUprobeMulti {
			p.AttachType = ebpf.AttachNone
		}
	}
}

// Side is where in a function a program runs.
type Side bool

// Sides of a function.
const (
	Entry  Side = false
	Return Side = true
)

// Probe attaches a program to addresses of a file. After Close it does not run any more.
func (t *Tap) Probe(ex *link.Executable, program string, side Side, at *link.UprobeMultiOptions) (io.Closer, error) {
	if !t.multi {
		return t.probeEach(ex, program, side, at)
	}
	attach := ex.UprobeMulti
	if side == Return {
		attach = ex.UretprobeMulti
	}
	l, err := attach(nil, t.Program(program), at)
	if err != nil {
		return nil, explain(err)
	}
	return l, nil
}

// perfProbe is one program at many addresses, a perf event at each. Taking the program off an event is
// quick. Removing an event is not, and Linux removes one at a time (20 to 90 ms): that goes on after
// Close, until the end of Tap.Close. Till then its address costs a trap and no more.
type perfProbe struct {
	links   []link.Link
	events  []*os.File // held so that closing a link only takes the program off
	removal *sync.WaitGroup
}

func (t *Tap) probeEach(ex *link.Executable, program string, side Side, at *link.UprobeMultiOptions) (io.Closer, error) {
	attach := ex.Uprobe
	if side == Return {
		attach = ex.Uretprobe
	}
	p := &perfProbe{removal: &t.removal}
	for i, address := range at.Addresses {
		l, err := attach("", t.Program(program), &link.UprobeOptions{Address: address, Cookie: at.Cookies[i]})
		if err == nil {
			err = p.hold(l)
		}
		if err != nil {
			_ = p.Close()
			return nil, fmt.Errorf("perf event at %#x: %w", address, explainEvent(err))
		}
	}
	return p, nil
}

// explainEvent knows that perf events want more than programs do: Linux asks for CAP_SYS_ADMIN since
// 6.16 and in the stable releases of July 2025 (CVE-2025-38466), Debian's and Ubuntu's also before, when
// kernel.perf_event_paranoid is above 2.
func explainEvent(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (run as root or with CAP_SYS_ADMIN: this Linux, %s, asks for it; uprobe_multi of Linux 6.6 does not)", err, release())
	}
	return explain(err)
}

func (p *perfProbe) hold(l link.Link) error {
	p.links = append(p.links, l)
	holder, ok := l.(link.PerfEvent)
	if !ok {
		return fmt.Errorf("%T holds no perf event", l)
	}
	event, err := holder.PerfEvent()
	if err != nil {
		return err
	}
	p.events = append(p.events, event)
	return nil
}

// detachedAtOnce bounds the threads that wait for Linux to see a program out.
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
