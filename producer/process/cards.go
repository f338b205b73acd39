package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/schema"
)

// Card is one physical GPU of the host, as its driver lists it.
type Card struct {
	schema.GPU
	Minor uint32 // of /dev/nvidia<minor>
}

// cards reads the GPUs of the host from the directory of its driver in /proc, in the order of their bus addresses: CUDA
// numbers equal GPUs in that order.
func cards(dir string) []Card {
	files, _ := filepath.Glob(filepath.Join(dir, "gpus", "*", "information"))
	var list []Card
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var c Card
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch strings.TrimSpace(key) {
			case "Model":
				c.Name = value
			case "GPU UUID":
				c.UUID = value
			case "Bus Location":
				c.Bus = busAddress(value)
			case "Device Minor":
				minor, _ := strconv.ParseUint(value, 10, 32)
				c.Minor = uint32(minor)
			}
		}
		c.Ordinal = c.Minor
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Card) int { return strings.Compare(a.Bus, b.Bus) })
	return list
}

// busAddress normalises a PCI address: four digits of domain, lower case.
func busAddress(s string) string {
	s = strings.ToLower(s)
	if domain, rest, ok := strings.Cut(s, ":"); ok && strings.Contains(rest, ":") {
		if d, err := strconv.ParseUint(domain, 16, 32); err == nil {
			return fmt.Sprintf("%04x:%s", d, rest)
		}
	}
	return s
}

const visibleDevices = "CUDA_VISIBLE_DEVICES"

// visibleTo returns the cards that an environment leaves to a process, in the process's own numbering; none when the
// environment is unknown. Like the driver it stops at the first entry that matches no card.
func visibleTo(all []Card, env map[string]string) (list []Card) {
	value, set := env[visibleDevices]
	switch {
	case env == nil:
		return nil
	case !set:
		return all
	}
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		i := slices.IndexFunc(all, func(c Card) bool {
			return len(entry) > len("GPU-") && strings.HasPrefix(strings.ToLower(c.UUID), strings.ToLower(entry))
		})
		if n, err := strconv.Atoi(entry); err == nil {
			i = n
		}
		if i < 0 || i >= len(all) {
			break
		}
		list = append(list, all[i])
	}
	return list
}

// openMinors returns the minor numbers of the GPUs whose device file a process has open.
func openMinors(pid uint32) []uint32 {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	var minors []uint32
	for _, file := range files {
		target, _ := os.Readlink(file) // "" for a file that was closed meanwhile
		number, ok := strings.CutPrefix(target, "/dev/nvidia")
		minor, err := strconv.ParseUint(number, 10, 32)
		if ok && err == nil && !slices.Contains(minors, uint32(minor)) {
			minors = append(minors, uint32(minor))
		}
	}
	return minors
}
