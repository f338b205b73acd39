package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// debian returns a program of Debian's package prometheus.
func debian(t *testing.T, program string) (path string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("GPUTAP_REQUIRE_PROMTOOL") != "" {
			t.Fatal(err)
		}
		t.Skipf("no %s: apt-get install prometheus", program)
	}
	return path
}

func promtool(t *testing.T, args ...string) (output string) {
	t.Helper()
	out, err := exec.Command(debian(t, "promtool"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	data, err := os.ReadFile(deploy + "rules/gputap.rules.yml")
	check(t, err)
	var file ruleFile
	check(t, yaml.Unmarshal(data, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestRules runs the unit tests of the rules, and checks the scrape configuration, which names the rules.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", deploy+"rules/gputap.test.yml")
	promtool(t, "check", "config", deploy+"prometheus/prometheus.yml")
}

// TestEachAlertIsTestedBothWays: for each alert the unit tests have a time when it is silent, and one when it fires.
func TestEachAlertIsTestedBothWays(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(deploy + "rules/gputap.test.yml")
	check(t, err)
	var file struct {
		Tests []struct {
			Name   string `yaml:"name"`
			Alerts []struct {
				Alert string `yaml:"alertname"`
				Want  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	check(t, yaml.Unmarshal(data, &file))
	healthy, fires := map[string]bool{}, map[string]bool{}
	for i, test := range file.Tests {
		for _, a := range test.Alerts {
			healthy[a.Alert] = healthy[a.Alert] || i == 0 && len(a.Want) == 0
			fires[a.Alert] = fires[a.Alert] || len(a.Want) > 0
		}
	}
	for _, r := range rules(t) {
		if r.Alert != "" && (!healthy[r.Alert] || !fires[r.Alert]) {
			t.Errorf("%s: silent in the first test: %v, fires in one: %v", r.Alert, healthy[r.Alert], fires[r.Alert])
		}
	}
}

// TestDocsHaveEachAlert: the table of docs/dashboards.md names the alerts in their order, and each runbook is a heading
// of its page.
func TestDocsHaveEachAlert(t *testing.T) {
	t.Parallel()
	headings := map[string]bool{} // page#anchor
	var named, want []string
	for _, page := range []string{"alerts.md", "dashboards.md"} {
		data, err := os.ReadFile("../../../docs/" + page)
		check(t, err)
		for _, m := range regexp.MustCompile("(?m)^\\| `(Gputap\\w+)` \\|").FindAllStringSubmatch(string(data), -1) {
			named = append(named, m[1])
		}
		for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(data), -1) {
			headings[page+"#"+strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
		}
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		want = append(want, r.Alert)
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "/docs/")
		if !headings[anchor] && anchor != "alerts.md#{{ $labels.rule }}" {
			t.Errorf("%s: the docs have no heading for the runbook %q", r.Alert, r.Annotations["runbook_url"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s needs a summary and a description", r.Alert)
		}
	}
	if !slices.Equal(named, want) {
		t.Errorf("the docs have the alerts %q, the rules have %q", named, want)
	}
}

// TestQueriesParse gives each query of the dashboards to promtool as a rule.
func TestQueriesParse(t *testing.T) {
	t.Parallel()
	var file ruleFile
	file.Groups = append(file.Groups, struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}{Name: "queries"})
	for _, d := range dashboards(t) {
		for _, q := range d.queries() {
			file.Groups[0].Rules = append(file.Groups[0].Rules,
				rule{Record: fmt.Sprintf("q%d", len(file.Groups[0].Rules)), Expr: expand(q, nil)})
		}
	}
	data, err := yaml.Marshal(file)
	check(t, err)
	path := filepath.Join(t.TempDir(), "queries.yml")
	check(t, os.WriteFile(path, data, 0o644))
	want := fmt.Sprintf("%d rules", len(file.Groups[0].Rules))
	if out := promtool(t, "check", "rules", path); !strings.Contains(out, want) {
		t.Errorf("promtool does not report %s: %s", want, out)
	}
}
