package analyze

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// measures are what --fail-on can name: of one process, the largest of all counts.
var measures = []string{"leak", "peak", "unmatched_frees", "failed_calls"}

// condition is one value of --fail-on: a measure above a limit.
type condition struct {
	measure string
	limit   uint64
	text    string
}

var units = map[string]uint64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

func parseCondition(text string) (condition, error) {
	measure, limit, found := strings.Cut(text, ">")
	measure, limit = strings.TrimSpace(measure), strings.TrimSpace(limit)
	digits := strings.TrimRight(limit, "KMGTiB")
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	unit, known := units[limit[len(digits):]]
	if !found || !slices.Contains(measures, measure) || err != nil || n < 0 || !known {
		return condition{}, fmt.Errorf("--fail-on %q: not a condition; use MEASURE>LIMIT, such as leak>100MiB, with "+
			"one of %s", text, strings.Join(measures, ", "))
	}
	return condition{measure, uint64(n * float64(unit)), text}, nil
}

// exceeded returns the conditions that hold. Each value names a measure.
func exceeded(conditions []condition, values map[string]uint64) (texts []string) {
	for _, c := range conditions {
		if v, known := values[c.measure]; known && v > c.limit {
			texts = append(texts, fmt.Sprintf("%s: it is %d", c.text, v))
		}
	}
	return texts
}
