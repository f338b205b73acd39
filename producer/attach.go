package producer

import (
	"fmt"
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
	inode   inode
	library schema.Library
	entries []link.Link
	returns []link.Link
}

// wantedCalls are the rows of the call table that the features need.
func wantedCalls(features []schema.Kind) []schema.CallID {
	wanted := map[schema.Kind]bool{}
	for _, f := range features {
		wanted[f] = true
	}
	var ids []schema.CallID
	for id := range schema.Calls {
		if schema.Calls[id].Needs(wanted) {
			ids = append(ids, schema.CallID(id))
		}
	}
	return ids
}

// attach probes one library. open is the path it can be opened at, name what a user calls it.
func attach(tap *bpf.Tap, open, name string, wanted []schema.CallID) (*attachment, error) {
	file, err := os.Open(open)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	defer file.Close()
	id, err := inodeOf(file)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	sites, absent, err := symbols(file, wanted)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("attach %s: it exports none of the CUDA driver's functions", name)
	}
	executable, err := link.OpenExecutable(open)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	a := &attachment{inode: id, library: schema.Library{Path: name, Inode: id.ino, Absent: absent}}
	for _, shape := range shapes(sites) {
		if err := a.attachShape(tap, executable, shape, sites); err != nil {
			a.close()
			return nil, fmt.Errorf("attach %s: shape %s: %w", name, shape, err)
		}
	}
	for _, s := range sites {
		a.library.Attached++
		if s.stepped {
			a.library.Stepped++
		}
	}
	return a, nil
}

func shapes(sites []site) []schema.Shape {
	var list []schema.Shape
	for _, s := range sites {
		if shape := schema.Calls[s.call].Shape; !slices.Contains(list, shape) {
			list = append(list, shape)
		}
	}
	return list
}

// attachShape attaches the program pair of one shape to all its symbols: two links. The return goes
// first: a return without its entry is passed over, an entry that waits for ever would be a loss.
func (a *attachment) attachShape(tap *bpf.Tap, ex *link.Executable, shape schema.Shape, sites []site) error {
	var options link.UprobeMultiOptions
	for _, s := range sites {
		if schema.Calls[s.call].Shape == shape {
			options.Addresses = append(options.Addresses, s.offset)
			options.Cookies = append(options.Cookies, uint64(s.call))
		}
	}
	if !shape.EntryOnly() {
		l, err := ex.UretprobeMulti(nil, tap.Program(string(shape)+"_exit"), &options)
		if err != nil {
			return err
		}
		a.returns = append(a.returns, l)
	}
	l, err := ex.UprobeMulti(nil, tap.Program(string(shape)+"_enter"), &options)
	if err != nil {
		return err
	}
	a.entries = append(a.entries, l)
	return nil
}

// close takes the probes out again, entries before returns, so that calls under way are still seen.
// Linux waits for running programs at each link, so the links of a side go together.
func (a *attachment) close() {
	closeAll(a.entries)
	closeAll(a.returns)
	a.returns, a.entries = nil, nil
}

func closeAll(links []link.Link) {
	var group sync.WaitGroup
	for _, l := range links {
		group.Go(func() { _ = l.Close() })
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
	all := []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy, schema.KindSync}
	sites, absent, err := symbols(file, wantedCalls(all))
	if err != nil {
		return schema.Library{}, fmt.Errorf("inspect %s: %w", path, err)
	}
	l := schema.Library{Path: path, Attached: uint32(len(sites)), Absent: absent}
	for _, s := range sites {
		if s.stepped {
			l.Stepped++
		}
	}
	return l, nil
}
