package metric

import (
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// Check returns what differs between the families of a scrape and the table: unknown families, types, labels and HELP.
// It ignores families that are not gputap's.
func Check(scraped []*dto.MetricFamily) (differences []string) {
	for _, is := range scraped {
		name := is.GetName()
		if !strings.HasPrefix(name, "gputap_") {
			continue
		}
		want := Find(name)
		if want == nil {
			differences = append(differences, name+": not in the table of schema/metric")
			continue
		}
		if kind := strings.ToLower(is.GetType().String()); kind != string(want.Type) {
			differences = append(differences, fmt.Sprintf("%s: a %s, the table says %s", name, kind, want.Type))
		}
		if is.GetHelp() != want.Help {
			differences = append(differences, fmt.Sprintf("%s: HELP is %q, the table says %q", name, is.GetHelp(),
				want.Help))
		}
		for _, m := range is.GetMetric() {
			if labels := labelsOf(m); !slices.Equal(labels, slices.Sorted(slices.Values(want.Labels))) {
				differences = append(differences, fmt.Sprintf("%s: labels %q, the table says %q", name, labels,
					want.Labels))
				break
			}
		}
	}
	return differences
}

func labelsOf(m *dto.Metric) (names []string) {
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}
