package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gputap/gputap/schema"
)

// logPage is a log of several goroutines.
type logPage struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *logPage) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

func (p *logPage) contains(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.text.String(), text)
}

// keys are those of a log line's object, which has no object in it.
func keys(t *testing.T, line string) (list []string) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(line))
	for n := 0; ; n++ {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if word, ok := token.(string); ok && n%2 == 1 {
			list = append(list, word)
		}
	}
}

// TestLogLinesHaveUniqueKeys: some readers of JSON refuse a repeated key, others take the last one.
func TestLogLinesHaveUniqueKeys(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	i := f.instance("a", newChain)
	if _, err := f.admin.Publish(t.Context(), schema.Subject(0, "c", "h", schema.KindMemory), hostile); err != nil {
		t.Fatal(err)
	}
	f.send("h")
	eventually(t, "a batch is folded", func() bool { return i.Counters().Commits.Load() > 0 })
	i.stop()
	said := map[string]bool{}
	for line := range strings.Lines(f.log.text.String()) {
		list := keys(t, line)
		slices.Sort(list)
		if len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Error(line)
		}
		said[line[strings.Index(line, `"msg"`):strings.Index(line, `,"consumer"`)]] = true
	}
	if !said[`"msg":"shard acquired"`] || !said[`"msg":"first batch folded"`] ||
		!said[`"msg":"useless batch copied to the dead letters"`] {
		t.Errorf("it says %v", said)
	}
}
