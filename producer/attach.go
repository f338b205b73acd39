package producer

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// inode is the identity of a library file: what a path means changes with the mount namespace.
type inode struct {
	dev uint64
	ino uint64
}

// attachment is one probed library file. Its links hold the file open.
type attachment struct {
	library schema.Library
	names   map[uint64]string // file offset → exported function
	probed  map[string]bool   // of those, by name
	entries []io.Closer
	returns []io.Closer
}

// attach probes one library. name is what a user calls it.
func attach(tap *bpf.Tap, file *os.File, number uint64, name string, wanted features) (*attachment, error) {
	exported, err := readExports(file, wanted.calls())
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	if len(exported.sites) == 0 {
		return nil, fmt.Errorf("attach %s: it exports none of the CUDA driver's functions", name)
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	a := &attachment{
		library: schema.Library{Path: name, Inode: number, Absent: exported.absent}, names: exported.names,
		probed: map[string]bool{},
	}
	if err := a.probe(tap, executable, exported.sites, wanted); err != nil {
		a.close()
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	return a, nil
}

// probe attaches each program to all the calls it stands for: one link a program. Returns go first: a
// return without its entry is passed over, an entry that waits for ever would be a loss.
func (a *attachment) probe(tap *bpf.Tap, ex *link.Executable, sites []site, wanted features) error {
	failed := map[schema.CallID]error{}
	for _, g := range groups(sites, returnProgram) {
		a.returns = append(a.returns, g.attach(wanted, failed, func(at *link.UprobeMultiOptions) (io.Closer, error) {
			return tap.Probe(ex, g.program, bpf.Return, at)
		})...)
	}
	for _, g := range groups(sites, entryProgram) {
		a.entries = append(a.entries, g.attach(wanted, failed, func(at *link.UprobeMultiOptions) (io.Closer, error) {
			return tap.Probe(ex, g.program, bpf.Entry, at)
		})...)
	}
	var first error
	for _, s := range sites {
		if err := failed[s.call]; err != nil {
			a.library.Failed = append(a.library.Failed, schema.Calls[s.call].Symbol)
			first = cmp.Or(first, err)
			continue
		}
		a.probed[schema.Calls[s.call].Symbol] = true
		a.library.Attached++
		if s.stepped {
			a.library.Stepped++
		}
	}
	if a.library.Attached == 0 {
		return first
	}
	return nil
}

// group is a program and where it stands.
type group struct {
	program string
	sites   []site
}

func groups(sites []site, programOf func(*schema.Call) string) []group {
	var list []group
	for _, s := range sites {
		program := programOf(&schema.Calls[s.call])
		if program == "" {
			continue
		}
		i := slices.IndexFunc(list, func(g group) bool { return g.program == program })
		if i < 0 {
			i, list = len(list), append(list, group{program: program})
		}
		list[i].sites = append(list[i].sites, s)
	}
	return list
}

// attach makes one link for the whole group. Linux refuses it as a whole for one bad place: then each
// place has a link of its own, and only those that cannot be are failed.
func (g group) attach(wanted features, failed map[schema.CallID]error, probe func(*link.UprobeMultiOptions) (io.Closer, error)) []io.Closer {
	l, err := probe(g.options(wanted, g.sites))
	if err == nil {
		return []io.Closer{l}
	}
	var links []io.Closer
	for i, s := range g.sites {
		if failed[s.call] != nil {
			continue // its return is not probed: an entry alone would wait for ever
		}
		l, err := probe(g.options(wanted, g.sites[i:i+1]))
		if err != nil {
			failed[s.call] = err
			continue
		}
		links = append(links, l)
	}
	return links
}

func (g group) options(wanted features, sites []site) *link.UprobeMultiOptions {
	o := &link.UprobeMultiOptions{}
	for _, s := range sites {
		o.Addresses = append(o.Addresses, s.offset)
		o.Cookies = append(o.Cookies, wanted.cookie(s.call))
	}
	return o
}

// close takes the probes out again, entries before returns, so that calls under way are still seen.
// Linux waits for running programs at each, so those of a side go together.
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

// Inspect says what attaching a library for every feature would find, without attaching it.
func Inspect(path string) (schema.Library, error) {
	file, err := os.Open(path)
	if err != nil {
		return schema.Library{}, fmt.Errorf("inspect library: %w", err)
	}
	defer file.Close()
	exported, err := readExports(file, everything.calls())
	if err != nil {
		return schema.Library{}, fmt.Errorf("inspect %s: %w", path, err)
	}
	l := schema.Library{Path: path, Attached: uint32(len(exported.sites)), Absent: exported.absent}
	for _, s := range exported.sites {
		if s.stepped {
			l.Stepped++
		}
	}
	return l, nil
}
