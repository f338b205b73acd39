package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// noise are the parts of an output that differ from run to run.
var noise = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`GPU-[0-9a-f-]+`), "GPU"},
	{regexp.MustCompile(`HOST-\d+-\w+`), "INSTANCE"},
	{regexp.MustCompile(`0x[0-9a-f]+`), "ADDRESS"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+[-\w.]*`), "VERSION"},
	{regexp.MustCompile(`\d[\d.,]*([eE][+-]?\d+)?( ?([KMG]i)?B\b|[nµm]?s\b|[mh]\d+[ms]\d*s?\b| ?%)?`), "N"},
	{regexp.MustCompile(`\s+`), " "},
}

// shape returns a line without what differs from run to run.
func shape(line string) string {
	if host, err := os.Hostname(); err == nil {
		line = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllString(line, "HOST")
	}
	line = regexp.MustCompile(`\bgpu-1\b`).ReplaceAllString(line, "HOST") // the machine of the pages
	for _, n := range noise {
		line = n.pattern.ReplaceAllString(line, n.as)
	}
	return strings.TrimSpace(line)
}

// missing returns the first shown line that output does not have, in order; lines of "…" stand for any.
func missing(shown []string, output string) (line string, found bool) {
	rest := strings.Split(output, "\n")
	for _, line := range shown {
		want := shape(line)
		if want == "" || want == "…" {
			continue
		}
		at := 0
		for at < len(rest) && shape(rest[at]) != want {
			at++
		}
		if at == len(rest) {
			return line, true
		}
		rest = rest[at+1:]
	}
	return "", false
}

func TestShape(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ shown, output string }{
		{"2026-11-23 04:00:35Z   0 processes running", "2027-01-01 00:00:00Z   2 processes running"},
		{"0x7d0000000000  GPU-a0b1c2d3 device      4.00 KiB  1s", "0x7d32cc00000  GPU-00 device 16.00 MiB 12s"},
		{"kept for 24h0m0s in 4 shards", "kept for 48h0m0s in 16 shards"},
		{"a\n…\nc 1", "a\nb\nc 2"},
	} {
		if line, found := missing(strings.Split(row.shown, "\n"), row.output); found {
			t.Errorf("%q is missing in %q", line, row.output)
		}
	}
	for _, row := range []struct{ shown, output string }{
		{"LIVE  PEAK", "LIVE  UNFREED"}, {"b\na", "a\nb"}, {`"pid": 1`, `"tid": 1`},
	} {
		if _, found := missing(strings.Split(row.shown, "\n"), row.output); !found {
			t.Errorf("%q passes for %q", row.output, row.shown)
		}
	}
}
