package producer

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/schema"
)

// Holding is what one process has of one driver library.
type Holding struct {
	Library schema.Library
	// Functions is how many of the library's exported functions the process holds the address of, and
	// Probed how many of those gputap probes.
	Functions int
	Probed    int
	// Outside names those without a probe that work on memory or submit work.
	Outside []string
}

// mostScanned bounds the memory of a process that is looked through for addresses.
const mostScanned = 256 << 20

// Audit says what gputap can see of a running process: for each driver library that it has mapped,
// which of the table's symbols are there, and which functions the process holds the address of, in
// the data of its program and libraries. It stops nothing and changes nothing.
func Audit(pid uint32) ([]Holding, error) {
	regions, err := regionsOf(pid)
	if err != nil {
		return nil, err
	}
	var list []Holding
	seen := map[string]bool{}
	for _, r := range regions {
		if !r.executable || !strings.HasPrefix(filepath.Base(r.path), "libcuda.so") || seen[r.path] {
			continue
		}
		seen[r.path] = true
		h, err := hold(pid, regions, r.path)
		if err != nil {
			return nil, err
		}
		list = append(list, *h)
	}
	return list, nil
}

func hold(pid uint32, regions []region, path string) (*Holding, error) {
	open := openable(pid, path)
	library, err := Inspect(open)
	if err != nil {
		return nil, err
	}
	library.Path = path
	file, err := os.Open(open)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", open, err)
	}
	defer file.Close()
	exported, err := readExports(file, everything.calls())
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", open, err)
	}
	probed := map[string]bool{}
	for _, s := range exported.sites {
		probed[schema.Calls[s.call].Symbol] = true
	}
	h := &Holding{Library: library}
	found := map[string]bool{}
	for _, symbol := range addressesHeld(pid, regions, path, exported.names) {
		if found[symbol] {
			continue
		}
		found[symbol] = true
		h.Functions++
		switch {
		case probed[symbol]:
			h.Probed++
		case matters(symbol):
			h.Outside = append(h.Outside, symbol)
		}
	}
	slices.Sort(h.Outside)
	return h, nil
}

// region is a line of a process's maps.
type region struct {
	start, end, offset   uint64
	writable, executable bool
	path                 string // "" of anonymous memory
}

func regionsOf(pid uint32) ([]region, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("read the mappings of process %d: %w", pid, err)
	}
	var list []region
	for line := range strings.SplitSeq(string(b), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		offset, err3 := strconv.ParseUint(fields[2], 16, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		r := region{start: start, end: end, offset: offset}
		r.writable, r.executable = fields[1][1] == 'w', fields[1][2] == 'x'
		if i := strings.IndexByte(line, '/'); i >= 0 {
			r.path = line[i:]
		}
		list = append(list, r)
	}
	return list, nil
}

// openable is where a file that a process has mapped can be opened from here.
func openable(pid uint32, path string) string {
	return fmt.Sprintf("/proc/%d/root%s", pid, strings.TrimSuffix(path, " (deleted)"))
}

// addressesHeld are the exported functions of a library whose address stands in a process's data: that
// of files, with the zeroed memory that follows it, but not in its heaps and stacks.
func addressesHeld(pid uint32, regions []region, path string, names map[uint64]string) []string {
	addresses := map[uint64]string{}
	for _, r := range regions {
		if r.path != path || !r.executable {
			continue
		}
		for offset, symbol := range names {
			if offset >= r.offset && offset-r.offset < r.end-r.start {
				addresses[r.start+offset-r.offset] = symbol
			}
		}
	}
	var held []string
	left := uint64(mostScanned)
	buf := make([]byte, 1<<20)
	for i, r := range regions {
		afterFile := i > 0 && r.path == "" && regions[i-1].path != "" && regions[i-1].end == r.start
		if r.path == path || (r.path == "" && !afterFile) {
			continue // read-only too: a linker may protect what it has resolved
		}
		if r.executable || r.end-r.start > left {
			continue
		}
		left -= r.end - r.start
		for at := r.start; at < r.end; at += uint64(len(buf)) {
			n := readMemory(pid, at, buf[:min(uint64(len(buf)), r.end-at)])
			for word := 0; word+8 <= n; word += 8 {
				if symbol := addresses[binary.LittleEndian.Uint64(buf[word:])]; symbol != "" {
					held = append(held, symbol)
				}
			}
		}
	}
	return held
}
