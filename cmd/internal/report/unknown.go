package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// figures are the groups of figures of a process, by the fold that they come from.
type figures struct{ memory, launches, copies bool }

// of returns the group of a fold.
func (f *figures) of(fold string) *bool {
	switch fold {
	case "leak":
		return &f.memory
	case "launch":
		return &f.launches
	}
	return &f.copies
}

// Told reports whether a fold told of the process.
func (p *Process) Told(fold string) bool { return *p.told.of(fold) }

// SetUnknown marks the figures of a fold as unknown: it did not answer about the process.
func (p *Process) SetUnknown(fold string) { *p.lacks.of(fold) = true }

// Memory returns a figure of gputap-leak about the process; nil: unknown.
func (p *Process) Memory(figure uint64) *uint64 {
	if p.lacks.memory {
		return nil
	}
	return &figure
}

// UnknownLast orders processes whose memory is unknown behind the others.
func UnknownLast(a, b *Process) int {
	switch {
	case a.lacks.memory == b.lacks.memory:
		return 0
	case a.lacks.memory:
		return 1
	}
	return -1
}

// keys are those whose values are unknown.
func (l figures) keys(evidence string) (keys []string) {
	if l.memory {
		keys = append(keys, "ended", "live_bytes", "live_allocations", "peak_bytes", "unfreed_at_exit_bytes",
			"unfreed_at_exit_allocations", "host_memory", "gpus", "threads", "classes", "freed_with_context_bytes",
			"freed_with_context_allocations", "holders", "exports", "pools", "torch", "verdicts", "unseen")
		if evidence == "complete" {
			keys = append(keys, "evidence")
		}
	}
	if l.launches {
		keys = append(keys, "launches", "kernels", "graph_launches", "graph_launches_partial", "host_functions",
			"recorded", "top_kernels", "graphs", "launch_gaps")
	}
	if l.copies {
		keys = append(keys, "copies", "waits", "copy_groups", "recorded")
	}
	return keys
}

// MarshalJSON writes null for what is unknown.
func (p *Process) MarshalJSON() ([]byte, error) {
	type plain Process
	var all bytes.Buffer
	e := json.NewEncoder(&all)
	e.SetEscapeHTML(false) // an encoder that wants it escapes the result
	if err := e.Encode((*plain)(p)); err != nil || p.lacks == (figures{}) {
		return all.Bytes(), err
	}
	return withNulls(all.Bytes(), p.lacks.keys(p.Evidence))
}

// withNulls replaces the values of some keys of an object.
func withNulls(object []byte, keys []string) ([]byte, error) {
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if slices.Contains(keys, key.(string)) {
			value = json.RawMessage("null")
		}
		separator := ","
		if out.Len() == 0 {
			separator = "{"
		}
		fmt.Fprintf(&out, "%s%q:%s", separator, key, value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// writeUnknown says that a program did not answer about the process.
func writeUnknown(out io.Writer, figures, program string) {
	fmt.Fprintf(out, "  %s unknown: %s did not answer about this process\n", figures, program)
}
