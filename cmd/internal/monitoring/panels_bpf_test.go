//go:build bpf

package monitoring

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// api is the HTTP API of a Prometheus.
type api struct {
	t       *testing.T
	address string
}

type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (s *series) value() float64 {
	v, _ := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
	return v
}

func (a *api) get(path string, parameters url.Values, data any) {
	a.t.Helper()
	response, err := http.Get(a.address + path + "?" + parameters.Encode())
	check(a.t, err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	check(a.t, json.NewDecoder(response.Body).Decode(&answer))
	if answer.Status != "success" {
		a.t.Fatalf("%s %v: %s", path, parameters, answer.Error)
	}
	check(a.t, json.Unmarshal(answer.Data, data))
}

func (a *api) query(q string) []series {
	a.t.Helper()
	var data struct {
		Result []series `json:"result"`
	}
	a.get("/api/v1/query", url.Values{"query": {q}}, &data)
	return data.Result
}

// one returns the value of a query with one result, and -1 without one.
func (a *api) one(q string) float64 {
	a.t.Helper()
	if got := a.query(q); len(got) == 1 {
		return got[0].value()
	}
	return -1
}

// selections are the values of the variables with which each dashboard is looked at.
var selections = map[string][]map[string]string{
	"gputap-fleet": {{"cluster": ".*"}, {"cluster": leakCluster}},
	"gputap-host":  {{"cluster": leakCluster, "hostname": leakHost}},
	"gputap-process": {{"cluster": leakCluster, "hostname": leakHost, "comm": leakComm,
		"pid": strconv.Itoa(leakPID)}},
	"gputap-pipeline": {{}},
}

// TestPanelsHaveData runs every query of the dashboards against a Prometheus that scrapes a fleet. It needs root,
// because the panels of the pipeline show a producer; make test-bpf runs it.
func TestPanelsHaveData(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal("needs root")
		}
		t.Skip("the producer needs root")
	}
	prometheus := debian(t, "prometheus")
	a := startPrometheus(t, prometheus, startFleet(t))
	all := dashboards(t)
	var missing []string
	defer func() {
		if len(missing) > 0 {
			t.Logf("no data:\n%s", strings.Join(missing, "\n"))
		}
	}()
	a.eventually("every panel has data", func() bool {
		missing = nil
		for _, d := range all {
			for _, variables := range selections[d.UID] {
				missing = append(missing, a.withoutData(d, variables)...)
			}
		}
		return len(missing) == 0
	})
	checkVariables(a, all)
	checkTruth(a, all)
	checkRules(a)
}

// withoutData returns the queries of a dashboard that have no result.
func (a *api) withoutData(d *dashboard, variables map[string]string) (missing []string) {
	a.t.Helper()
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			if expr := expand(q.Expr, variables); len(a.query(expr)) == 0 {
				missing = append(missing, fmt.Sprintf("%s: %s, query %s: %s", d.Title, p.Title, q.RefID, expr))
			}
		}
	}
	return missing
}

// checkVariables: the values that a user may select have the ones of selections among them.
func checkVariables(a *api, all map[string]*dashboard) {
	a.t.Helper()
	for _, d := range all {
		selected := selections[d.UID][len(selections[d.UID])-1]
		for _, v := range d.Templating.List {
			q := labelValues.FindStringSubmatch(v.Query)
			if q == nil {
				continue
			}
			match := expand(q[1], selected)
			var values []string
			a.get("/api/v1/label/"+q[2]+"/values", url.Values{"match[]": {match}}, &values)
			if !slices.Contains(values, selected[v.Name]) {
				a.t.Errorf("%s: variable %s offers %q, not %s", d.Title, v.Name, values, selected[v.Name])
			}
		}
	}
}

// checkTruth compares panels with the events that the test has published.
func checkTruth(a *api, all map[string]*dashboard) {
	a.t.Helper()
	panel := func(file, title string) string {
		d := all[file]
		for _, p := range d.Panels {
			if p.Title == title {
				return expand(p.Targets[0].Expr, selections[d.UID][0])
			}
		}
		a.t.Fatalf("%s has no panel %q", file, title)
		return ""
	}
	hosts := float64(simulatedHosts + 2) // and the leaking one, and the real one
	for _, want := range []struct {
		file, title string
		is          func(float64) bool
	}{
		{"fleet.json", "Hosts", func(v float64) bool { return v == hosts }},
		{"fleet.json", "Processes that leak", func(v float64) bool { return v == 1 }},
		{"fleet.json", "Alerts firing", func(v float64) bool { return v >= 1 }},
		{"host.json", "GPU memory held", func(v float64) bool { return v == leakMinutes*leakBytes }},
		{"process.json", "GPU memory held", func(v float64) bool { return v == leakMinutes*leakBytes }},
		{"process.json", "Suspect memory", func(v float64) bool { return v >= 256<<20 && v <= leakMinutes*leakBytes }},
		{"process.json", "Growth per hour", func(v float64) bool { return v > 59*leakBytes && v < 61*leakBytes }},
		{"process.json", "Evidence", func(v float64) bool { return v == 0 }},
		{"pipeline.json", "Producers down", func(v float64) bool { return v == 0 }},
		{"pipeline.json", "Producers without NATS", func(v float64) bool { return v == 0 }},
		{"pipeline.json", "Consumers down", func(v float64) bool { return v == 0 }},
	} {
		q, v := panel(want.file, want.title), 0.0
		a.eventually(want.file+": "+want.title, func() bool {
			if v = a.one(q); !want.is(v) {
				a.t.Logf("%s: %s is %v", want.file, want.title, v)
			}
			return want.is(v)
		})
	}
	leaks := a.query(panel("fleet.json", "Who leaks"))
	want := maps.Clone(selections["gputap-process"][0])
	want["user"], want["job"] = leakUser, leakJob // not the job of the scrape
	if len(leaks) != 1 || !maps.Equal(leaks[0].Metric, want) {
		a.t.Errorf("%v leak, want %v", leaks, want)
	}
}

// checkRules: Prometheus evaluates every rule without an error, a leak and an anomaly raise their alerts, and each
// recorded name has data.
func checkRules(a *api) {
	a.t.Helper()
	type alert struct {
		Labels map[string]string `json:"labels"`
		State  string            `json:"state"`
	}
	var data struct {
		Groups []struct {
			Rules []struct {
				Name      string  `json:"name"`
				Type      string  `json:"type"`
				Health    string  `json:"health"`
				LastError string  `json:"lastError"`
				Alerts    []alert `json:"alerts"`
			} `json:"rules"`
		} `json:"groups"`
	}
	a.get("/api/v1/rules", nil, &data)
	alerts, recorded := map[string][]alert{}, 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				a.t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
			alerts[r.Name] = r.Alerts
			if r.Type == "recording" {
				recorded++
				if len(a.query(r.Name)) == 0 {
					a.t.Errorf("%s has no series", r.Name)
				}
			}
		}
	}
	if recorded == 0 {
		a.t.Error("nothing is recorded")
	}
	for name, want := range map[string]alert{
		"GputapLeakSuspect": {map[string]string{"hostname": leakHost, "severity": "warning"}, "pending"},
		"GputapAnomaly":     {map[string]string{"rule": "oom", "hostname": leakHost, "severity": "critical"}, "firing"},
	} {
		if !slices.ContainsFunc(alerts[name], func(is alert) bool {
			for label, value := range want.Labels {
				if is.Labels[label] != value {
					return false
				}
			}
			return is.State == want.State
		}) {
			a.t.Errorf("%s: %+v, want %+v", name, alerts[name], want)
		}
	}
}
