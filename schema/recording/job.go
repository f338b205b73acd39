package recording

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/gputap/gputap/schema"
)

// JobHosts are the hosts on which a job runs, as far as messages told. Any number of goroutines may use it.
type JobHosts struct {
	pattern string

	mu      sync.Mutex
	hosts   map[Host]bool
	decoder *schema.Decoder
	batch   schema.Batch
}

// NewJobHosts returns JobHosts without a host. pattern is that of jobs, with *, ? and [a-z].
func NewJobHosts(pattern string) (*JobHosts, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("job %q is not a pattern: %w; use *, ? and [a-z]", pattern, err)
	}
	return &JobHosts{pattern: pattern, hosts: map[Host]bool{}, decoder: schema.NewDecoder()}, nil
}

// Is reports whether a job has the name that the pattern asks for. A slash is like any other character.
func (j *JobHosts) Is(job string) bool {
	hide := strings.NewReplacer("/", "\x00")
	matched, _ := path.Match(hide.Replace(j.pattern), hide.Replace(job))
	return matched
}

// Add adds a host.
func (j *JobHosts) Add(h Host) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hosts[h] = true
}

// Has reports whether a host was added, or a message of it named a process of the job.
func (j *JobHosts) Has(h Host) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hosts[h]
}

// Matches reports whether the host of a message runs the job, or has run it. The first message of a host that names a
// process of the job tells, so earlier messages do not match.
func (j *JobHosts) Matches(m *Message) bool {
	host := m.Host()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.hosts[host] {
		return true
	}
	if j.decoder.Decode(m.Data, &j.batch) != nil {
		return false
	}
	for i := range j.batch.Processes {
		if j.Is(j.batch.Processes[i].Job) {
			j.hosts[host] = true
			return true
		}
	}
	return false
}
