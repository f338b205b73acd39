package analyze

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

// memoryMeasures are what --fail-on can name for commands about memory. Of leak, the process with the most
// on all GPUs counts, of peak the process and GPU with the most; the others are sums.
var memoryMeasures = []string{"leak", "peak", "unmatched_frees", "failed_calls"}

// condition is one value of --fail-on: a measure above a limit.
type condition struct {
	measure string
	limit   uint64
	text    string
}

var units = map[string]uint64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// parseCondition parses a condition on one of the measures that the command computes.
func parseCondition(text string, measures []string) (condition, error) {
	measure, limit, found := strings.Cut(text, ">")
	measure, limit = strings.TrimSpace(measure), strings.TrimSpace(limit)
	digits := strings.TrimRight(limit, "KMGTiB")
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	unit, known := units[limit[len(digits):]]
	if found && len(measures) == 0 {
		return condition{}, fmt.Errorf("--fail-on %q: this command has no measures; use watermark, leakage or usage, "+
			"with one of %s", text, strings.Join(memoryMeasures, ", "))
	}
	n *= float64(unit)
	if !found || !slices.Contains(measures, measure) || err != nil || !known || !(n >= 0 && n < 1<<64) {
		return condition{}, fmt.Errorf("--fail-on %q: not a condition; use MEASURE>LIMIT, such as leak>100MiB, with "+
			"one of %s", text, strings.Join(measures, ", "))
	}
	return condition{measure, uint64(n), text}, nil
}

// format returns a value of the measure: bytes as other output shows them, and exactly if that is rounded.
func (c *condition) format(v uint64) string {
	switch {
	case c.measure != "leak" && c.measure != "peak":
		return decimal(v)
	case v < units["KiB"]:
		return app.Bytes(v)
	}
	return fmt.Sprintf("%s (%d bytes)", app.Bytes(v), v)
}

// failFlag adds --fail-on with these measures. Without measures, the help does not show the flag, and its use is an
// error that names the commands that have it.
func (q *question) failFlag(cmd *cobra.Command, measures []string) {
	q.measures = measures
	cmd.Flags().StringArrayVar(&q.fail, "fail-on", nil, "end with status 3 if this holds, such as 'leak>100MiB'")
	if len(measures) == 0 {
		_ = cmd.Flags().MarkHidden("fail-on") // the flag exists
	}
}

// exceeded returns the conditions that hold.
func (q *question) exceeded(m *memory) (texts []string, err error) {
	for _, c := range q.conditions {
		v, err := m.measure(&q.Range, c.measure)
		if err != nil {
			return nil, err
		}
		if v > c.limit {
			texts = append(texts, c.text+": it is "+c.format(v))
		}
	}
	return texts, nil
}

// measure returns one of memoryMeasures.
func (m *memory) measure(r *Range, name string) (n uint64, err error) {
	switch name {
	case "unmatched_frees":
		return m.Findings.UnmatchedFrees, nil
	case "failed_calls":
		return m.Findings.Failed, nil
	}
	for _, p := range m.selected(r) {
		if name == "peak" {
			peaks, err := p.Watermark()
			if err != nil {
				return 0, err
			}
			for i := range peaks { // their sum was live at no time
				n = max(n, peaks[i].Bytes)
			}
			continue
		}
		leaks, err := p.Leakage()
		if err != nil {
			return 0, err
		}
		total := uint64(0)
		for i := range leaks {
			total += leaks[i].Bytes
		}
		n = max(n, total)
	}
	return n, nil
}
