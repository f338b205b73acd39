// Package scrape reads Prometheus metrics pages for programs that measure or check gputap's own processes.
package scrape

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Page is a metrics page: values by series, which are metric names with the labels as written.
type Page map[string]float64

// client asks for no compression, which would cost the measured process CPU time.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 30 * time.Second}

// Body returns the answer to a GET request. A status other than 200 is an error.
func Body(url string) ([]byte, error) {
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, answer.Status, body)
	}
	return body, err
}

// Get reads the metrics of a process that listens on addr, if their names begin with prefix. It parses no other line: a
// page may be long.
func Get(addr, prefix string) (Page, error) {
	url := "http://" + addr + "/metrics"
	body, err := Body(url)
	if err != nil {
		return nil, err
	}
	page, err := parse(string(body), prefix)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	return page, nil
}

func parse(text, prefix string) (Page, error) {
	page := Page{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' || !strings.HasPrefix(line, prefix) {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		page[line[:at]] = v
	}
	return page, nil
}

// Sum adds up the series of a metric that have one of the label values, or all series if none is given. A metric that
// is not on the page adds up to 0.
func (p Page) Sum(name string, values ...string) (total float64) {
	for series, v := range p {
		metric, labels, _ := strings.Cut(series, "{")
		has := func(value string) bool { return strings.Contains(labels, strconv.Quote(value)) }
		if metric == name && (len(values) == 0 || slices.ContainsFunc(values, has)) {
			total += v
		}
	}
	return total
}
