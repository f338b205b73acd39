package attach

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/library"
	"github.com/gputap/gputap/schema"
)

// attachment is one probed library file. Its links hold the file open.
type attachment struct {
	library schema.Library
	names   map[uint64]string // file offset → exported function
	probed  map[string]bool   // functions with a probe
	entries []io.Closer
	returns []io.Closer
}

// attachFile probes one library. name is its path for users. A PyTorch library without the wanted function is no error:
// heartbeats name the function as absent.
func attachFile(tap *bpf.Tap, file *os.File, number uint64, name string, wanted Features) (*attachment, error) {
	of := cmp.Or(library.Of(name), schema.DriverLibrary)
	exports, err := library.Read(file, wanted.calls(of))
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	if len(exports.Sites) == 0 && len(exports.Absent) > 0 && of == schema.DriverLibrary {
		return nil, fmt.Errorf("attach %s: it exports none of the CUDA driver's functions", name)
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	a := &attachment{
		library: schema.Library{Path: name, Inode: number, Absent: exports.Absent}, names: exports.Names,
		probed: map[string]bool{},
	}
	if err := a.probe(tap, executable, exports.Sites, wanted); err != nil {
		a.close()
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	return a, nil
}

// probe attaches each program to all its calls with one link. Returns go first: a return without its entry is ignored,
// while an entry that waits for ever would count as a loss.
func (a *attachment) probe(tap *bpf.Tap, ex *link.Executable, sites []library.Site, wanted Features) error {
	failed := map[schema.CallID]error{}
	attach := func(side bpf.Side, program func(programs) string) (links []io.Closer) {
		groups := map[string][]library.Site{} // by program
		for _, s := range sites {
			if name := program(programsOf(&schema.Calls[s.Call])); name != "" {
				groups[name] = append(groups[name], s)
			}
		}
		for name, group := range groups {
			probe := func(at *link.UprobeMultiOptions) (io.Closer, error) { return tap.Probe(ex, name, side, at) }
			links = append(links, attachGroup(group, wanted, failed, probe)...)
		}
		return links
	}
	a.returns = attach(bpf.Return, func(p programs) string { return p.exit })
	a.entries = attach(bpf.Entry, func(p programs) string { return p.entry })
	var first error
	for _, s := range sites {
		if err := failed[s.Call]; err != nil {
			a.library.Failed = append(a.library.Failed, schema.Calls[s.Call].Symbol)
			first = cmp.Or(first, err)
			continue
		}
		a.probed[schema.Calls[s.Call].Symbol] = true
		a.library.Attached++
		if s.Stepped {
			a.library.Stepped++
		}
	}
	if a.library.Attached == 0 {
		return first
	}
	return nil
}

// attachGroup makes one link for all sites of a program. Linux refuses the whole link if it refuses one site. Then each
// site gets a link of its own, and failed has those that Linux refuses.
func attachGroup(
	sites []library.Site, wanted Features, failed map[schema.CallID]error,
	probe func(*link.UprobeMultiOptions) (io.Closer, error),
) (links []io.Closer) {
	var all link.UprobeMultiOptions
	for _, s := range sites {
		all.Addresses = append(all.Addresses, s.Offset)
		all.Cookies = append(all.Cookies, wanted.cookie(s.Call))
	}
	if l, err := probe(&all); err == nil {
		return []io.Closer{l}
	}
	for i, s := range sites {
		if failed[s.Call] != nil {
			continue // without its return probe an entry would wait for ever
		}
		l, err := probe(&link.UprobeMultiOptions{Addresses: all.Addresses[i : i+1], Cookies: all.Cookies[i : i+1]})
		if err != nil {
			failed[s.Call] = err
			continue
		}
		links = append(links, l)
	}
	return links
}

// close removes the probes, entries before returns, so that calls under way are still recorded. Linux waits for
// running programs at each, so close removes those of a side in parallel.
func (a *attachment) close() {
	closeAll(a.entries)
	closeAll(a.returns)
	a.returns, a.entries = nil, nil
}

func closeAll(probes []io.Closer) {
	var group sync.WaitGroup
	for _, p := range probes {
		group.Go(func() { _ = p.Close() })
	}
	group.Wait()
}
