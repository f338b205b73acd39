package metric_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gputap/gputap/schema/metric"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

// TestNamesFollowTheConventions checks each family by the rules of Prometheus: prefix, base units, _total on counters
// alone, HELP as a sentence, labels without a repeated name.
func TestNamesFollowTheConventions(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^gputap(_[a-z]+)+$`)
	label := regexp.MustCompile(`^([a-z]+(_[a-z]+)*|UUID)$`)
	unit := regexp.MustCompile(`_(ms|millis|milliseconds|kb|kib|mb|mib|gib|percent|microseconds|nanoseconds|ns)(_|$)`)
	for _, f := range metric.Families {
		if !name.MatchString(f.Name) || unit.MatchString(f.Name) {
			t.Errorf("%s: not a name with a base unit", f.Name)
		}
		if strings.HasSuffix(f.Name, "_total") != (f.Type == metric.Counter) {
			t.Errorf("%s: a %s", f.Name, f.Type)
		}
		if first := f.Help[:1]; !strings.HasSuffix(f.Help, ".") || first != strings.ToUpper(first) {
			t.Errorf("%s: HELP is no sentence: %q", f.Name, f.Help)
		}
		for i, l := range f.Labels {
			if !label.MatchString(l) || slices.Contains(f.Labels[:i], l) {
				t.Errorf("%s: label %q", f.Name, l)
			}
		}
		if slices.Contains(f.Labels, "pid") && f.Type != metric.Gauge {
			t.Errorf("%s: a %s with a pid", f.Name, f.Type)
		}
		if !slices.Contains(metric.Components, f.Component) || lives[f.Life] == "" {
			t.Errorf("%s: component %q, life %q", f.Name, f.Component, f.Life)
		}
	}
}

func TestUnknownFamilyPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if why := fmt.Sprint(recover()); !strings.Contains(why, "gputap_odd is not in the table") {
			t.Errorf("panic: %s", why)
		}
	}()
	metric.Desc("gputap_odd")
}

// scraped is one gauge with its own idea of a family.
type scraped struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	n    int // labels
}

func (scraped) Describe(chan<- *prometheus.Desc) {}

func (s scraped) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(s.desc, s.kind, 1, make([]string, s.n)...)
}

func TestCheckFindsDifferences(t *testing.T) {
	t.Parallel()
	const name = "gputap_unseen_functions"
	const help = "Driver functions without a probe that processes looked up and that handle memory or submit work."
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	for _, tt := range []struct {
		what string
		scraped
		want string
	}{
		{"right", scraped{desc(name, help, "cluster", "hostname"), prometheus.GaugeValue, 2}, ""},
		{"order", scraped{desc(name, help, "hostname", "cluster"), prometheus.GaugeValue, 2}, ""},
		{"of others", scraped{desc("go_goroutines", "x"), prometheus.GaugeValue, 0}, ""},
		{"unknown", scraped{desc("gputap_odd", "x"), prometheus.GaugeValue, 0}, "not in the table"},
		{"type", scraped{desc(name, help, "cluster", "hostname"), prometheus.CounterValue, 2}, "a counter"},
		{"label absent", scraped{desc(name, help, "hostname"), prometheus.GaugeValue, 1}, `labels ["hostname"]`},
		{"label added", scraped{desc(name, help, "cluster", "hostname", "pid"), prometheus.GaugeValue, 3}, "labels"},
		{"help", scraped{desc(name, "Odd.", "cluster", "hostname"), prometheus.GaugeValue, 2}, "HELP"},
	} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(tt.scraped)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := metric.Check(families)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: got %q, want %q", tt.what, got, tt.want)
		}
	}
}

const (
	page  = "../../docs/metrics.md"
	first = "<!-- families: from schema/metric by go test ./schema/metric -update -->\n"
	last  = "<!-- end -->\n"
)

var titles = map[metric.Component]string{
	metric.Program: "Every program", metric.Producer: "gputap-producer", metric.Consumer: "Every consumer",
	metric.Leak: "gputap-leak", metric.Anomaly: "gputap-anomaly", metric.Launch: "gputap-launch",
	metric.Bandwidth: "gputap-bandwidth",
}

var lives = map[metric.Life]string{
	metric.LifeProgram: "program", metric.LifeShard: "shard", metric.LifeHost: "host", metric.LifeProcess: "process",
	metric.LifeAlert: "alert",
}

// TestDocumented compares the tables of docs/metrics.md with the table of families.
func TestDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(data), first)
	got, after, ended := strings.Cut(rest, last)
	if !begun || !ended {
		t.Fatalf("%s has no lines %q and %q", page, first, last)
	}
	want := tables()
	if *update {
		if err := os.WriteFile(page, []byte(before+first+want+last+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s is not current: run make generate\ngot\n%s\nwant\n%s", page, got, want)
	}
}

func tables() string {
	var w strings.Builder
	for _, c := range metric.Components {
		fmt.Fprintf(&w, "\n### %s\n\n| family | type | labels | life | meaning |\n| --- | --- | --- | --- | --- |\n",
			titles[c])
		for _, f := range metric.Families {
			if f.Component == c {
				fmt.Fprintf(&w, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, labels(f.Labels), lives[f.Life], f.Help)
			}
		}
	}
	return w.String() + "\n"
}

// labels names the set of labels that the family begins with, and lists the others.
func labels(all []string) string {
	var words []string
	for _, set := range []struct {
		name   string
		labels []string
	}{
		{"PROCESS", metric.Process}, {"WORKLOAD", metric.Workload}, {"GPU", metric.GPU}, {"HOST", metric.Host},
	} {
		if len(all) >= len(set.labels) && slices.Equal(all[:len(set.labels)], set.labels) {
			words, all = append(words, set.name), all[len(set.labels):]
			break
		}
	}
	for _, l := range all {
		words = append(words, "`"+l+"`")
	}
	return strings.Join(words, ", ")
}
