package record

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var longAgo = time.Unix(1, 0)

func TestRecordsEverything(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 3)
	f.publish(200)
	o := f.options(tempPath(t))
	o.Since = longAgo
	s := f.recordAll(o)
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(int, *published) bool { return true }))
	expectLive(t, "at the beginning", got.live, f.live(0))
	expectLive(t, "at the end", got.end, f.live(200))
	info, err := os.Stat(o.Path)
	check(t, err)
	if s.Messages != 200 || s.Bytes != info.Size() || s.Removed != 0 || s.Shards != 3 || s.Incomplete != 0 ||
		s.Lost() != nil {
		t.Errorf("%+v, and the file has %d bytes", s, info.Size())
	}
}

// TestFollowsAndDrains publishes while the recorder runs. It ends behind the last message that is stored when ctx ends.
func TestFollowsAndDrains(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 2)
	f.publish(50)
	o := f.options(tempPath(t))
	r := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-r.Ready()
	f.publish(100)
	cancel()
	check(t, <-ended)
	got := readFile(t, o.Path)
	expect(t, got.messages, f.messages(func(i int, _ *published) bool { return i >= 50 }))
	expectLive(t, "at the beginning", got.live, f.live(50))
	expectLive(t, "at the end", got.end, f.live(150))
	if slices.Contains(got.evidence, "gap") || slices.Contains(got.evidence, "late") {
		t.Errorf("evidence %v", got.evidence)
	}
}

// TestSelection records a part of the stored messages.
func TestSelection(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 3)
	f.publish(150)
	from, to := f.published[50].Stored, f.published[100].Stored
	token := func(m *published, i int) string { return strings.Split(m.Subject, ".")[i] }
	tests := []struct {
		name         string
		selection    recording.Selection
		since, until time.Time
		want         func(i int, m *published) bool
	}{
		{"times", recording.Selection{}, from, to, func(_ int, m *published) bool {
			return !m.Stored.Before(from) && m.Stored.Before(to)
		}},
		{"a host", recording.Selection{Host: "gpu-2"}, longAgo, time.Time{}, func(_ int, m *published) bool {
			return m.host == "gpu-2"
		}},
		{"a host and a kind",
			recording.Selection{Cluster: clusterName, Host: "gpu-2", Kinds: []schema.Kind{schema.KindHost}}, from,
			time.Time{}, func(_ int, m *published) bool {
				return m.host == "gpu-2" && token(m, 6) == "host" && !m.Stored.Before(from)
			}},
		{"two kinds", recording.Selection{Kinds: []schema.Kind{schema.KindHost, schema.KindCopy}}, longAgo, to,
			func(_ int, m *published) bool { return token(m, 6) == "host" && m.Stored.Before(to) }},
		{"another cluster", recording.Selection{Cluster: "other"}, longAgo, time.Time{},
			func(int, *published) bool { return false }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := f.options(tempPath(t))
			o.Selection, o.Since, o.Until = tt.selection, tt.since, tt.until
			if tt.until.IsZero() {
				f.recordAll(o)
			} else {
				check(t, New(o).Run(t.Context()))
			}
			got := readFile(t, o.Path)
			expect(t, got.messages, f.messages(tt.want))
			live := map[string]int64{}
			for i := range f.published {
				p := &f.published[i]
				if p.Stored.Before(tt.since) && tt.selection.HasHost(clusterName, p.host) &&
					(len(tt.selection.Kinds) == 0 || slices.Contains(tt.selection.Kinds, schema.KindMemory)) {
					live[p.host] += p.delta
				}
			}
			for host, n := range live {
				if n == 0 {
					delete(live, host)
				}
			}
			expectLive(t, "at the beginning", got.live, live)
		})
	}
}

// TestUntilLater ends at a time that comes while the recorder runs.
func TestUntilLater(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	o := f.options(tempPath(t))
	o.Until = time.Now().Add(300 * time.Millisecond)
	r := New(o)
	ended := make(chan error)
	go func() { ended <- r.Run(t.Context()) }()
	<-r.Ready()
	for len(f.published) == 0 || f.published[len(f.published)-1].Stored.Before(o.Until) {
		f.publish(1)
	}
	check(t, <-ended)
	want := f.messages(func(_ int, m *published) bool { return m.Stored.Before(o.Until) })
	expect(t, readFile(t, o.Path).messages, want)
}

// TestFullDisk ends with an error, and the file stays whole.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	f := newFleet(t, bustest.Connect(t), 1)
	f.publish(20)
	o := f.options("")
	o.Since, o.To = longAgo, failing{}
	r := New(o)
	if err := r.Run(t.Context()); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("ends with %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
