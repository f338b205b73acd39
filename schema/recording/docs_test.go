package recording

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"
)

// TestPageShowsTheBytes compares the bytes in docs/recording-form.md with a recording of one stream.
func TestPageShowsTheBytes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/recording-form.md")
	check(t, err)
	_, block, found := strings.Cut(string(page), "```hex\n")
	block, _, ends := strings.Cut(block, "```")
	if !found || !ends {
		t.Fatal("docs/recording-form.md has no hex block")
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		data, _, _ := strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(data), ""))
	}
	var out bytes.Buffer
	w, err := NewWriter(&out)
	check(t, err)
	check(t, w.AddStreams(Selection{Host: "gpu-7"}, []Stream{{
		Name: "GPUTAP_EV_000", Created: time.Unix(1767323045, 0), After: 41, State: KnowledgeComplete,
	}}))
	check(t, w.Close())
	if want := hex.EncodeToString(out.Bytes()); digits.String() != want {
		t.Errorf("the page has\n%s\nand the recording\n%s", &digits, want)
	}
}
