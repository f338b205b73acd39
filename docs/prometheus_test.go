package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema/metric"
)

// TestPrometheusExamples checks the YAML of docs/prometheus.md with promtool. The rules run over series as
// dcgm-exporter and gputap show them.
func TestPrometheusExamples(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skip("no promtool: apt-get install prometheus")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	series, err := os.ReadFile("testdata/dcgm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	test, ran := write("test.yaml", string(series)), 0
	for _, p := range pages(t) {
		if p.name != "docs/prometheus.md" {
			continue
		}
		for _, b := range p.blocks {
			text, args := strings.Join(b.lines, "\n"), []string(nil)
			switch {
			case b.language != "yaml":
				continue
			case strings.HasPrefix(text, "scrape_configs:"):
				args = []string{"check", "config", write("config.yaml", text)}
			default:
				write("rules.yaml", text)
				args = []string{"test", "rules", test}
			}
			ran++
			if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
				t.Errorf("%s:%d: promtool %s: %v\n%s", p.name, b.line, args, err, out)
			}
		}
	}
	if ran != 2 {
		t.Errorf("promtool ran %d times, want 2", ran)
	}
}

// TestPagesNameFamiliesOfTheTable finds names of metrics that no program has. A page may abbreviate the end of names.
func TestPagesNameFamiliesOfTheTable(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`\bgputap_[a-z_]+`)
	noMetrics := []string{"gputap_owner", "gputap_meta", "gputap_lease", "gputap_add"} // keys, buckets, a kernel
	for _, p := range pages(t) {
		for _, found := range name.FindAllString(p.text, -1) {
			known := slices.ContainsFunc(metric.Families, func(f metric.Family) bool {
				return f.Name == found || strings.HasSuffix(found, "_") && strings.HasPrefix(f.Name, found) ||
					f.Type == metric.Histogram && slices.Contains([]string{"_bucket", "_sum", "_count"},
						strings.TrimPrefix(found, f.Name))
			})
			if !known && !slices.Contains(noMetrics, found) {
				t.Errorf("%s: no program has the metric %s", p.name, found)
			}
		}
	}
}
