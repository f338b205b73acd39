package redact

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

var (
	discard = slog.New(slog.DiscardHandler)
	stored  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fleet makes messages whose private names all contain the word secret.
type fleet struct {
	t        *testing.T
	sequence uint64
	hosts    []*consumertest.Host
	now      schema.KTime
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, now: 1e9}
	for _, name := range []string{"secret-host-1", "secret.host.2", "secret\xff"} {
		h := consumertest.Memory(t, name)
		h.Header.Cluster = "secret-cluster"
		f.hosts = append(f.hosts, h)
	}
	return f
}

func (f *fleet) message(h *schema.Header, kind schema.Kind, data []byte) *recording.Message {
	f.sequence++
	return &recording.Message{Sequence: f.sequence, Stored: stored.Add(time.Duration(f.sequence) * time.Second),
		Subject: schema.Subject(0, h.Cluster, h.Host, kind), Data: data}
}

// memory is an allocation of each host, and a process that frees most of its memory before it ends.
func (f *fleet) memory() (all []*recording.Message) {
	for i, h := range f.hosts {
		p := h.Process(7, 1, "train")
		p.Exe, p.Container, p.User, p.Cgroup = "/home/secret/train", "secretc0ffee", "secret-user", "/secret.slice/a"
		p.Pod, p.Unit, p.Job, p.Rank, p.Ranks = "secret-pod", "secret.service", "secret-job", uint32(i+1), 3
		f.now += 1e6
		p.Alloc(7, uint64(f.now), 1000+uint64(f.now)%997, f.now, 10)
		ended := h.Process(uint32(f.now/1e6), f.now, "leaky")
		ended.User, ended.Job = "secret\xfeuser", "secret-job"
		ended.Alloc(8, uint64(f.now)<<8, 3<<30, f.now+1, 10).Alloc(8, uint64(f.now)<<9, 1<<20, f.now+1, 10)
		ended.Free(8, uint64(f.now)<<8, f.now+1e5, 10).Exit(f.now + 2e5)
		all = append(all, f.message(&h.Header, schema.KindMemory, h.Message()))
	}
	return all
}

// others are a heartbeat, a batch of a job's ranks, and two messages whose names are not known.
func (f *fleet) others() (all []*recording.Message) {
	h := f.hosts[0].Header
	beat := schema.NewBuilder(schema.KindHost)
	beat.Libraries = []schema.Library{{Path: "/secret/libcuda.so.1", Absent: []string{"cuNone"}}}
	all = append(all, f.message(&h, schema.KindHost, bytes.Clone(beat.Encode(&h))))
	ranks, job := schema.NewBuilder(schema.KindRank), h
	job.Host, ranks.Origin = "secret-job", h.Host
	ranks.Process(schema.Process{PID: 7, Start: 1, Comm: "train", Job: "secret-job", User: "secret-user"})
	all = append(all, f.message(&job, schema.KindRank, bytes.Clone(ranks.Encode(&job))))
	all = append(all, f.message(&h, schema.KindCopy, []byte("secret")))
	return append(all, f.message(&h, schema.KindMemory, f.hosts[1].Message())) // on the subject of another host
}

// write writes a recording that begins with the state of leak after the first messages.
func (f *fleet) write(alerts *[]alert.Alert) (path string) {
	f.t.Helper()
	tracker := leak.New(leak.Config{Rules: leak.Rules{Mode: alert.ModeAlert, Unfreed: alert.ModeAlert, MinUnfreed: 1}})
	before := consumer.NewReplay(0, tracker, true, discard)
	for range 20 {
		for _, m := range f.memory() {
			before.Apply(m)
		}
	}
	*alerts = tracker.Alerts()
	path = filepath.Join(f.t.TempDir(), "in.gtr")
	w, _, err := recording.Append(path)
	check(f.t, err)
	check(f.t, before.Sections(w.AddSection))
	check(f.t, w.AddSection(recording.Section{Fold: "other", Host: "secret", Data: []byte("secret")}))
	check(f.t, w.AddStreams(recording.Selection{Cluster: "secret-cluster", Host: "secret", Job: "secret*"},
		[]recording.Stream{{Name: schema.StreamName(0), Created: stored, After: f.sequence,
			State: recording.KnowledgeComplete}}))
	for range 20 {
		for _, m := range append(f.memory(), f.others()...) {
			check(f.t, w.Append(m))
		}
	}
	check(f.t, w.Close())
	return path
}

// contents returns all bytes of a recording: the file, its messages with their subjects, and its state.
func contents(t *testing.T, path string) []byte {
	t.Helper()
	all, err := os.ReadFile(path)
	check(t, err)
	in, err := recording.Open(path)
	check(t, err)
	defer in.Close()
	for m, err := range in.Messages(recording.Filter{}) {
		check(t, err)
		all = append(append(all, m.Subject...), m.Data...)
	}
	for s, err := range in.State() {
		check(t, err)
		all = append(append(all, s.Cluster+s.Host+s.Fold...), s.Data...)
	}
	return all
}

// report replays a recording into leak. Its processes have no names.
func report(t *testing.T, path string) (all []leak.Process, names map[string]int) {
	t.Helper()
	in, err := recording.Open(path)
	check(t, err)
	defer in.Close()
	tracker := leak.New(leak.Config{})
	p := consumer.NewReplay(0, tracker, true, discard)
	for s, err := range in.State() {
		check(t, err)
		if s.Fold == tracker.Name() {
			check(t, p.Restore(s))
		}
	}
	for m, err := range in.Messages(recording.Filter{}) {
		check(t, err)
		p.Apply(&m)
	}
	names = map[string]int{}
	for _, q := range tracker.Report().Processes {
		for _, name := range []*string{&q.ID.Cluster, &q.ID.Host, &q.Exe, &q.Container, &q.User, &q.Cgroup, &q.Pod,
			&q.Unit, &q.Job} {
			names[*name]++
			*name = ""
		}
		all = append(all, q)
	}
	slices.SortStableFunc(all, func(a, b leak.Process) int {
		return cmp.Or(cmp.Compare(a.ID.PID, b.ID.PID), cmp.Compare(a.LiveBytes, b.LiveBytes))
	})
	return all, names
}

// TestFile redacts a recording: no private name is left, and leak finds the same.
func TestFile(t *testing.T) {
	t.Parallel()
	var alerts []alert.Alert
	in := newFleet(t).write(&alerts)
	if len(alerts) == 0 || !bytes.Contains(contents(t, in), []byte("secret-user")) {
		t.Fatal("the recording lacks alerts or names")
	}
	out := filepath.Join(t.TempDir(), "out.gtr")
	file, err := os.Create(out)
	check(t, err)
	s, err := File(t.Context(), in, file, discard)
	check(t, err)
	check(t, file.Close())
	if info, err := os.Stat(out); err != nil || s.Bytes != info.Size() || s.LeftOut != 41 || s.Damages != 0 ||
		s.Messages != 20*5 || s.Events == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	all := contents(t, out)
	for _, name := range []string{"secret", "c0ffee", "SECRET"} {
		if i := bytes.Index(all, []byte(name)); i >= 0 {
			t.Errorf("%q is left: %q", name, all[max(0, i-40):min(i+40, len(all))])
		}
	}
	want, names := report(t, in)
	got, pseudonyms := report(t, out)
	if len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("leak finds\n%+v, want\n%+v", got, want)
	}
	if a, b := slices.Sorted(maps.Values(names)), slices.Sorted(maps.Values(pseudonyms)); !slices.Equal(a, b) {
		t.Errorf("names occur %d times, and pseudonyms %d", a, b)
	}
	for p := range pseudonyms {
		if _, isName := names[p]; isName && p != "" {
			t.Errorf("%q is a name", p)
		}
	}
	for _, a := range alerts {
		if bytes.Contains(all, []byte(a.ID)) {
			t.Errorf("the id of an alert is left: %s", a.ID)
		}
	}
	selectionIsRedacted(t, out)
}

func selectionIsRedacted(t *testing.T, path string) {
	t.Helper()
	r, err := recording.Open(path)
	check(t, err)
	defer r.Close()
	s, streams, err := r.Streams()
	if err != nil || !s.Redacted || !strings.HasPrefix(s.Cluster, "cluster-") || !strings.HasPrefix(s.Job, "job-") ||
		len(streams) != 1 || streams[0].State != recording.KnowledgeComplete {
		t.Errorf("%+v of %+v, %v", streams, s, err)
	}
}

// TestDamagedFile copies what is whole.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	var alerts []alert.Alert
	in := newFleet(t).write(&alerts)
	data, err := os.ReadFile(in)
	check(t, err)
	data[len(data)-1] ^= 1
	check(t, os.WriteFile(in, data, 0o600))
	s, err := File(t.Context(), in, io.Discard, discard)
	if err != nil || s.Damages != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := File(ctx, in, io.Discard, discard); err == nil {
		t.Error("no error after the end of ctx")
	}
}

// TestBlocksInAnotherOrder copies the messages of a repeated block once, and counts those that come too late.
func TestBlocksInAnotherOrder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w, err := recording.NewWriter(&out)
	check(t, err)
	check(t, w.AddStreams(recording.Selection{}, []recording.Stream{{State: recording.KnowledgeComplete}}))
	f, ends := newFleet(t), []int{out.Len()}
	for range 3 {
		for _, m := range f.memory() {
			check(t, w.Append(m))
		}
		check(t, w.Flush())
		ends = append(ends, out.Len())
	}
	head, block := out.Bytes()[:ends[0]], func(i int) []byte { return out.Bytes()[ends[i]:ends[i+1]] }
	for name, tt := range map[string]struct {
		data [][]byte
		want Stats
	}{
		"in order":    {[][]byte{block(0), block(1), block(2)}, Stats{Messages: 9}},
		"repeated":    {[][]byte{block(0), block(1), block(0), block(1), block(2), block(2)}, Stats{Messages: 9}},
		"swapped":     {[][]byte{block(1), block(0), block(2)}, Stats{Messages: 6, Late: 3}},
		"in reverse":  {[][]byte{block(2), block(1), block(0)}, Stats{Messages: 3, Late: 6}},
		"late, twice": {[][]byte{block(2), block(1), block(1)}, Stats{Messages: 3, Late: 3}},
	} {
		path := filepath.Join(t.TempDir(), "in.gtr")
		check(t, os.WriteFile(path, slices.Concat(head, slices.Concat(tt.data...)), 0o600))
		s, err := File(t.Context(), path, io.Discard, discard)
		check(t, err)
		if s.Messages != tt.want.Messages || s.Late != tt.want.Late || s.LeftOut+s.Damages > 0 {
			t.Errorf("%s: %+v, want %+v", name, s, tt.want)
		}
	}
}

// TestNames gives equal names equal pseudonyms, and other ones with every key and kind of name.
func TestNames(t *testing.T) {
	t.Parallel()
	a, b := NewNames(), NewNames()
	x := a.Of(schema.PrivateUser, "ada")
	if x != a.Of(schema.PrivateUser, "ada") || !strings.HasPrefix(x, "user-") || a.Of(schema.PrivateUser, "") != "" {
		t.Errorf("%q", x)
	}
	if x == b.Of(schema.PrivateUser, "ada") || x[5:] == a.Of(schema.PrivateJob, "ada")[4:] {
		t.Error("a pseudonym can be guessed")
	}
	if a.Of(schema.PrivateUser, "\xff") != a.Of(schema.PrivateUser, "\uFFFD") {
		t.Error("a label has another pseudonym than its name")
	}
}
