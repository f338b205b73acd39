package query

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// Question asks every shard of a fold for rows.
type Question struct {
	What string `json:"what"` // which rows: a word that the fold knows
	Filter
	Detail bool `json:"detail,omitempty"` // rows with all their fields
	Limit  int  `json:"limit,omitempty"`  // most rows of each shard, by the measure of the fold; 0: all
}

// Filter selects the rows of some processes or hosts. A text is a name or a pattern with *, ? and [a-z]; "": all.
type Filter struct {
	Cluster string `json:"cluster,omitempty"`
	Host    string `json:"host,omitempty"`
	User    string `json:"user,omitempty"` // name, or uid in digits
	Comm    string `json:"comm,omitempty"`
	Job     string `json:"job,omitempty"`
	PID     uint32 `json:"pid,omitempty"`
}

// Parse reads a question and validates it.
func Parse(data []byte) (*Question, error) {
	q := &Question{}
	if err := json.Unmarshal(data, q); err != nil {
		return nil, fmt.Errorf("read the question: %w; send a JSON object", err)
	}
	if q.What == "" || q.Limit < 0 {
		return nil, fmt.Errorf("read the question: what=%q limit=%d; set what, and a limit of 0 or more", q.What,
			q.Limit)
	}
	return q, q.Validate()
}

// Validate rejects patterns that are not closed.
func (f *Filter) Validate() error {
	for _, row := range []struct{ name, pattern string }{
		{"cluster", f.Cluster}, {"host", f.Host}, {"user", f.User}, {"comm", f.Comm}, {"job", f.Job},
	} {
		if _, err := path.Match(row.pattern, ""); err != nil {
			return fmt.Errorf("%s %q is not a pattern: %w; use *, ? and [a-z]", row.name, row.pattern, err)
		}
	}
	return nil
}

// Subject is the process of a row.
type Subject struct {
	Cluster, Host, User, Comm, Job string
	UID, PID                       uint32
}

// ClusterToken returns the token of a subject that selects the cluster: its name, or * for a pattern.
func (f *Filter) ClusterToken() string { return token(f.Cluster) }

// HostToken returns the token of a subject that selects the host: its name, or * for a pattern.
func (f *Filter) HostToken() string { return token(f.Host) }

func token(pattern string) string {
	if pattern == "" || strings.ContainsAny(pattern, "*?[") {
		return "*"
	}
	return schema.Token(pattern)
}

// Process reports whether the filter selects a process.
func (f *Filter) Process(s *Subject) bool {
	return f.OfHost(s.Cluster, s.Host) && matches(f.Comm, s.Comm) && matches(f.Job, s.Job) &&
		(f.PID == 0 || f.PID == s.PID) &&
		(f.User == "" || matches(f.User, s.User) || f.User == strconv.FormatUint(uint64(s.UID), 10))
}

// OfProcesses reports whether the filter selects processes by more than their host.
func (f *Filter) OfProcesses() bool { return f.User != "" || f.Comm != "" || f.Job != "" || f.PID != 0 }

// OfHost reports whether the filter selects a host. It reads only Cluster and Host.
func (f *Filter) OfHost(cluster, host string) bool {
	return matches(f.Cluster, cluster) && matches(f.Host, host)
}

// matches treats a slash as any other character, which path.Match does not.
func matches(pattern, name string) bool {
	if pattern == "" || pattern == name {
		return true
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return false
	}
	hide := strings.NewReplacer("/", "\x00")
	found, _ := path.Match(hide.Replace(pattern), hide.Replace(name))
	return found
}

// Page describes one message of an answer.
type Page struct {
	Fold      string    `json:"fold"`
	Shard     int       `json:"shard"`
	Epoch     uint64    `json:"epoch"` // of the owner: grows with each claim of the shard
	Instance  string    `json:"instance"`
	Applied   uint64    `json:"applied"`    // last message of the shard's stream in the state
	EventTime time.Time `json:"event_time"` // wall time of the latest event in the state
	Total     int       `json:"total"`      // rows that the question selects, before its limit
	Number    int       `json:"page"`       // from 1
	Last      bool      `json:"last"`
}

// pageHeader is the NATS header with a Page in JSON.
const pageHeader = "Gputap-Page"
