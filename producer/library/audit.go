package library

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// Holding is the part of one driver library that one process can call.
type Holding struct {
	Library schema.Library
	// Functions counts the library's exported functions whose address the process holds; Probed counts those of them
	// that gputap probes.
	Functions int
	Probed    int
	// Outside names the functions without a probe that work on memory or submit work.
	Outside []string
}

// maxScanned bounds the memory of a process that Audit searches for addresses, in bytes.
const maxScanned = 256 << 20

// Audit reports the coverage of a running process by gputap. For each driver library that the process has mapped it
// tells which symbols of the table the library has, and which functions the process can call: those whose address is in
// the data of its program and libraries. It neither stops nor changes the process.
func Audit(pid uint32) ([]Holding, error) {
	mappings, err := mappingsOf(pid)
	if err != nil {
		return nil, err
	}
	var list []Holding
	seen := map[string]bool{}
	for _, m := range mappings {
		if !m.executable || !m.driver() || seen[m.Path] {
			continue
		}
		seen[m.Path] = true
		h, err := holdingOf(pid, mappings, m.Path)
		if err != nil {
			return nil, err
		}
		list = append(list, *h)
	}
	return list, nil
}

func holdingOf(pid uint32, mappings []Mapping, path string) (*Holding, error) {
	library, exports, err := Inspect(fmt.Sprintf("/proc/%d/root%s", pid, strings.TrimSuffix(path, " (deleted)")))
	if err != nil {
		return nil, err
	}
	library.Path = path
	probed := map[string]bool{}
	for _, s := range exports.Sites {
		probed[schema.Calls[s.Call].Symbol] = true
	}
	held := addressesHeld(pid, mappings, path, exports.Names)
	h := &Holding{Library: library, Functions: len(held)}
	for symbol := range held {
		switch {
		case probed[symbol]:
			h.Probed++
		case relevant(symbol):
			h.Outside = append(h.Outside, symbol)
		}
	}
	slices.Sort(h.Outside)
	return h, nil
}

// addressesHeld returns the exported functions of a library whose address is in a process's data: in mapped files and
// in the zeroed memory behind them, but not in heaps and stacks.
func addressesHeld(pid uint32, mappings []Mapping, path string, names map[uint64]string) map[string]bool {
	addresses := map[uint64]string{}
	for _, m := range mappings {
		if m.Path != path || !m.executable {
			continue
		}
		for offset, symbol := range names {
			if offset >= m.offset && offset-m.offset < m.End-m.Start {
				addresses[m.Start+offset-m.offset] = symbol
			}
		}
	}
	held := map[string]bool{}
	left := uint64(maxScanned)
	buf := make([]byte, 1<<20)
	for i, m := range mappings {
		afterFile := i > 0 && m.Path == "" && mappings[i-1].Path != "" && mappings[i-1].End == m.Start
		if m.Path == path || (m.Path == "" && !afterFile) {
			continue // read-only files count: a linker may protect the resolved addresses
		}
		if m.executable || m.End-m.Start > left {
			continue
		}
		left -= m.End - m.Start
		for at := m.Start; at < m.End; at += uint64(len(buf)) {
			n := procfs.ReadMemory(pid, at, buf[:min(uint64(len(buf)), m.End-at)])
			for word := 0; word+8 <= n; word += 8 {
				if symbol := addresses[binary.LittleEndian.Uint64(buf[word:])]; symbol != "" {
					held[symbol] = true
				}
			}
		}
	}
	return held
}
