package monitoring

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const deploy = "../../../deploy/"

// dashboard is the part of Grafana's classic model that deploy/grafana uses.
type dashboard struct {
	UID        string   `json:"uid"`
	Title      string   `json:"title"`
	Tags       []string `json:"tags"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Query string `json:"query"`
}

type panel struct {
	ID          int                      `json:"id"`
	Type        string                   `json:"type"`
	Title       string                   `json:"title"`
	Description string                   `json:"description"`
	Grid        struct{ X, Y, W, H int } `json:"gridPos"`
	Targets     []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit       string          `json:"unit"`
			Thresholds json.RawMessage `json:"thresholds"`
			Links      []link          `json:"links"`
		} `json:"defaults"`
		Overrides []struct {
			Properties []struct {
				ID    string          `json:"id"`
				Value json.RawMessage `json:"value"`
			} `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
}

type link struct {
	URL string `json:"url"`
}

// dashboards reads deploy/grafana, by file name.
func dashboards(t *testing.T) map[string]*dashboard {
	t.Helper()
	paths, err := filepath.Glob(deploy + "grafana/*.json")
	check(t, err)
	all := map[string]*dashboard{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		check(t, err)
		d := &dashboard{}
		check(t, json.Unmarshal(data, d))
		all[filepath.Base(path)] = d
	}
	return all
}

// links are the links of a panel, of all its fields and of single ones.
func (p *panel) links(t *testing.T) (all []link) {
	t.Helper()
	all = p.FieldConfig.Defaults.Links
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.ID == "links" {
				var more []link
				check(t, json.Unmarshal(property.Value, &more))
				all = append(all, more...)
			}
		}
	}
	return all
}

func (d *dashboard) variables() (names []string) {
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	return names
}

// TestDashboards checks the identity of each dashboard, and that each panel says what to do, has a unit, a place of its
// own, and a threshold if it is one number.
func TestDashboards(t *testing.T) {
	t.Parallel()
	all := dashboards(t)
	uids := map[string]string{}
	for file, d := range all {
		uids[file] = d.UID
	}
	if want := (map[string]string{"fleet.json": "gputap-fleet", "host.json": "gputap-host",
		"process.json": "gputap-process", "pipeline.json": "gputap-pipeline"}); !maps.Equal(uids, want) {
		t.Errorf("dashboards %v, want %v: links and bookmarks use the uids", uids, want)
	}
	for file, d := range all {
		if d.Title == "" || !slices.Equal(d.Tags, []string{"gputap"}) || d.variables()[0] != "datasource" {
			t.Errorf("%s: title %q, tags %q, variables %q", file, d.Title, d.Tags, d.variables())
		}
		for i := range d.Panels {
			checkPanel(t, file, &d.Panels[i], i+1)
			for _, other := range d.Panels[:i] {
				a, b := d.Panels[i].Grid, other.Grid
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: %q lies over %q", file, d.Panels[i].Title, other.Title)
				}
			}
		}
	}
}

func checkPanel(t *testing.T, file string, p *panel, id int) {
	t.Helper()
	switch {
	case p.ID != id:
		t.Errorf("%s: %q has id %d, want %d", file, p.Title, p.ID, id)
	case p.Title == "" || len(p.Description) < 20 || p.FieldConfig.Defaults.Unit == "":
		t.Errorf("%s: panel %d needs a title, a description and a unit: %+v", file, id, p)
	case p.Type == "stat" && p.FieldConfig.Defaults.Thresholds == nil:
		t.Errorf("%s: %q has no thresholds", file, p.Title)
	case p.Grid.X+p.Grid.W > 24 || p.Grid.W == 0 || p.Grid.H == 0 || len(p.Targets) == 0:
		t.Errorf("%s: %q: place %+v, %d queries", file, p.Title, p.Grid, len(p.Targets))
	}
}

// TestLinksReachTheirDashboard: each link names a dashboard and sets all of its variables. Fleet leads to hosts and
// processes, a host to its processes.
func TestLinksReachTheirDashboard(t *testing.T) {
	t.Parallel()
	byUID, leads := map[string]*dashboard{}, map[string][]string{}
	all := dashboards(t)
	for _, d := range all {
		byUID[d.UID] = d
	}
	for file, d := range all {
		for i := range d.Panels {
			for _, l := range d.Panels[i].links(t) {
				to := checkLink(t, file, l, byUID)
				leads[d.UID] = append(leads[d.UID], to)
			}
		}
	}
	for from, want := range map[string][]string{
		"gputap-fleet": {"gputap-host", "gputap-process"}, "gputap-host": {"gputap-process"},
	} {
		slices.Sort(leads[from])
		if got := slices.Compact(leads[from]); !slices.Equal(got, want) {
			t.Errorf("%s leads to %q, want %q", from, got, want)
		}
	}
}

func checkLink(t *testing.T, file string, l link, byUID map[string]*dashboard) (uid string) {
	t.Helper()
	path, query, _ := strings.Cut(l.URL, "?")
	uid = strings.TrimPrefix(path, "/d/")
	if byUID[uid] == nil {
		t.Errorf("%s: no dashboard for the link %s", file, l.URL)
		return uid
	}
	var sets []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if name, is := strings.CutPrefix(name, "var-"); is {
			sets = append(sets, name)
		}
	}
	if want := byUID[uid].variables(); !slices.Equal(sets, want) {
		t.Errorf("%s: the link %s sets %q, its dashboard has %q", file, l.URL, sets, want)
	}
	if _, err := url.Parse(os.Expand(l.URL, func(string) string { return "x" })); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return uid
}

// queries are all expressions of a dashboard.
func (d *dashboard) queries() (all []string) {
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if q := labelValues.FindStringSubmatch(v.Query); q != nil {
			all = append(all, q[1])
		}
	}
	return all
}

// labelValues is how Grafana asks for the values of a label.
var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// expand replaces Grafana's variables. The scrape interval of tests is 1 s.
func expand(query string, variables map[string]string) string {
	return os.Expand(query, func(name string) string {
		if name == "__rate_interval" {
			return "5s"
		}
		return variables[name]
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
