package producer

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/schema"
)

// driverDir is where the driver lists the host's GPUs.
const driverDir = "/proc/driver/nvidia"

// card is one physical GPU of the host, as its driver lists it.
type card struct {
	schema.GPU
	minor uint32 // of /dev/nvidia<minor>
}

// cards are the host's GPUs in the order of their bus addresses, which is the order in which a program
// numbers equal ones.
func cards(dir string) []card {
	files, _ := filepath.Glob(filepath.Join(dir, "gpus", "*", "information"))
	var list []card
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var c card
		for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
			key, value, _ := strings.Cut(lines.Text(), ":")
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
				c.minor = uint32(minor)
			}
		}
		c.Ordinal = c.minor
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b card) int { return strings.Compare(a.Bus, b.Bus) })
	return list
}

// busAddress writes a PCI address as one form: four digits of domain, lower case.
func busAddress(s string) string {
	s = strings.ToLower(s)
	if domain, rest, ok := strings.Cut(s, ":"); ok && strings.Contains(rest, ":") {
		d, err := strconv.ParseUint(domain, 16, 32)
		if err == nil {
			return fmt.Sprintf("%04x:%s", d, rest)
		}
	}
	return s
}

// visible are the cards that a process was given by CUDA_VISIBLE_DEVICES, in its own numbering. Like
// the driver it stops at the first entry that names none.
func visible(all []card, value string, set bool) []card {
	if !set {
		return all
	}
	var list []card
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		i := slices.IndexFunc(all, func(c card) bool {
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

// environment is one variable of a process as it began; unreadable when the process is gone.
func environment(pid uint32, name string) (value string, set, readable bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", false, false
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if key, v, ok := strings.Cut(string(entry), "="); ok && key == name {
			return v, true, true
		}
	}
	return "", false, true
}

// openMinors are the GPUs whose device file a process has open.
func openMinors(pid uint32) []uint32 {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var minors []uint32
	for _, f := range files {
		target, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err != nil {
			continue
		}
		number, ok := strings.CutPrefix(filepath.Base(target), "nvidia")
		minor, err := strconv.ParseUint(number, 10, 32)
		if ok && err == nil && strings.HasPrefix(target, "/dev/") && !slices.Contains(minors, uint32(minor)) {
			minors = append(minors, uint32(minor))
		}
	}
	return minors
}
