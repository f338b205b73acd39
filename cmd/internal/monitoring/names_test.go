package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema/metric"
)

var (
	selector = regexp.MustCompile(`\b(gputap_\w+)(?:\{([^}]*)\})?`)
	several  = regexp.MustCompile(`\{__name__=~"([^"]+)",([^}]*)\}`) // metrics by a pattern
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without) \(([^)]*)\)`)
	suffix   = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// byPrometheus are the labels that a scrape and a histogram add.
var byPrometheus = []string{"instance", "job", "le"}

// family finds the metric family of a series.
func family(series string) *metric.Family {
	if f := metric.Find(series); f != nil && f.Type != metric.Histogram {
		return f
	}
	if f := metric.Find(suffix.ReplaceAllString(series, "")); f != nil && f.Type == metric.Histogram {
		return f
	}
	return nil
}

// checkNames checks the metrics and labels of a query against the table of schema/metric.
func checkNames(t *testing.T, where, query string) {
	t.Helper()
	known := slices.Clone(byPrometheus)
	for _, s := range several.FindAllStringSubmatch(query, -1) {
		pattern, found := regexp.MustCompile("^(?:"+s[1]+")$"), false
		for _, f := range metric.Families {
			if pattern.MatchString(f.Name) {
				found = true
				checkNames(t, where, f.Name+"{"+s[2]+"}")
				known = append(known, f.Labels...)
			}
		}
		if !found {
			t.Errorf("%s: schema/metric has no %s", where, s[1])
		}
	}
	for _, s := range selector.FindAllStringSubmatch(query, -1) {
		f := family(s[1])
		if f == nil {
			t.Errorf("%s: schema/metric has no %s", where, s[1])
			continue
		}
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(f.Labels, m[1]) && !slices.Contains(byPrometheus, m[1]) {
				t.Errorf("%s: %s has no label %s", where, s[1], m[1])
			}
		}
		known = append(known, f.Labels...)
	}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			if !slices.Contains(known, label) {
				t.Errorf("%s: no metric of the query has the label %s: %s", where, label, query)
			}
		}
	}
}

// TestNamesAreInTheTable: dashboards, rules and their unit tests use metrics and labels that exist.
func TestNamesAreInTheTable(t *testing.T) {
	t.Parallel()
	for file, d := range dashboards(t) {
		for _, q := range d.queries() {
			checkNames(t, file, q)
		}
	}
	for _, r := range rules(t) {
		checkNames(t, r.Alert+r.Record, r.Expr)
	}
	data, err := os.ReadFile(deploy + "rules/gputap.test.yml")
	check(t, err)
	series := regexp.MustCompile(`series: '([^']+)'`).FindAllStringSubmatch(string(data), -1)
	if len(series) < 20 {
		t.Fatalf("found %d series in the unit tests of the rules", len(series))
	}
	for _, s := range series {
		checkNames(t, "gputap.test.yml", s[1])
	}
}
