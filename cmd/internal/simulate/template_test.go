package simulate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gputap/gputap/schema"
)

// messagesOf reads the messages of a recorded run.
func messagesOf(tb testing.TB, packed []byte) (messages [][]byte) {
	tb.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		tb.Fatal(err)
	}
	next := schema.Recording(unpacked)
	for {
		data, err := next()
		if errors.Is(err, io.EOF) {
			return messages
		}
		if err != nil {
			tb.Fatal(err)
		}
		messages = append(messages, bytes.Clone(data))
	}
}

// samples are golden messages of every kind, and a recorded run.
func samples(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	whole, err := os.ReadFile("../../../schema/testdata/pytorch.batches.gz")
	if err != nil {
		t.Fatal(err)
	}
	for i, data := range messagesOf(t, whole) {
		all[fmt.Sprint("recorded ", i)] = data
	}
	paths, err := filepath.Glob("../../../schema/testdata/*.golden")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d goldens, %v", len(paths), err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = data
	}
	return all
}

// TestCopyEqualsReencodedBatch compares each copy of a template with a batch that was built from shifted events.
func TestCopyEqualsReencodedBatch(t *testing.T) {
	t.Parallel()
	moves := []move{
		{},
		{Time: 1 << 40, PID: 70_000, Handle: 5 << 47, GPU: 0x1234_5678_9abc},
		{Time: 7, PID: 1, Handle: 1 << 20, GPU: 1},
	}
	decoder, c := schema.NewDecoder(), newCopier()
	h := &schema.Header{
		Cluster: "c", Host: "another", BootID: "boot", Run: 9, Seq: 12, ClockOffset: -5,
		Lost: [schema.NumLosses]uint64{schema.LossSpool: 3},
	}
	compared := 0
	for name, data := range samples(t) {
		var b schema.Batch
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		if b.Kind == schema.KindNone {
			continue
		}
		plain := schema.NewBuilder(b.Kind)
		fill(plain, &b, &move{})
		tmpl, err := newTemplate(plain.Encode(&b.Header))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tmpl.kind != b.Kind || tmpl.events != b.Events {
			t.Fatalf("%s: a template of %d %s events", name, tmpl.events, tmpl.kind)
		}
		for _, m := range moves {
			moved := schema.NewBuilder(b.Kind)
			fill(moved, &b, &m)
			var want, got schema.Batch
			if err := schema.NewDecoder().Decode(moved.Encode(h), &want); err != nil {
				t.Fatal(err)
			}
			if err := schema.NewDecoder().Decode(c.append(nil, tmpl, h, &m), &got); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			equalBatches(t, name, &want, &got)
			compared += want.Events
		}
	}
	if compared < 100_000 {
		t.Errorf("%d events were compared", compared)
	}
}

// equalBatches compares headers, dictionaries and events. Widths of columns may differ.
func equalBatches(t *testing.T, name string, want, got *schema.Batch) {
	t.Helper()
	for _, pair := range [][2]any{
		{want.Header, got.Header}, {want.Processes, got.Processes}, {want.Threads, got.Threads}, {want.GPUs, got.GPUs},
		{want.Calls, got.Calls}, {want.Funcs, got.Funcs}, {want.Graphs, got.Graphs}, {want.Contexts, got.Contexts},
		{want.Shapes, got.Shapes}, {want.CUDAStreams, got.CUDAStreams}, {want.Older, got.Older},
		{
			want.Libraries, got.Libraries,
		}, {want.Coverage, got.Coverage}, {want.Linux, got.Linux}, {want.Producer, got.Producer},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Fatalf("%s:\n%+v, want\n%+v", name, pair[1], pair[0])
		}
	}
	for i := range want.Events {
		if w, g := eventOf(want, i), eventOf(got, i); w != g {
			t.Fatalf("%s: event %d is %+v, want %+v", name, i, g, w)
		}
	}
}

func eventOf(b *schema.Batch, i int) any {
	switch b.Kind {
	case schema.KindMemory:
		return b.Memory(i)
	case schema.KindLaunch:
		return b.Launch(i)
	case schema.KindCopy:
		return b.Copy(i)
	}
	return b.Sync(i)
}

// fill fills a Builder with a decoded batch and shifts its numbers one by one.
func fill(to *schema.Builder, b *schema.Batch, m *move) {
	for _, p := range b.Processes {
		p.PID += m.PID
		p.Start += m.Time
		to.Process(p)
	}
	for _, th := range b.Threads {
		th.TID += m.PID
		to.Thread(th)
	}
	for _, g := range b.GPUs {
		if tail := g.UUID[max(0, len(g.UUID)-12):]; len(tail) == 12 && strings.Trim(tail, "0123456789abcdef") == "" {
			var v uint64
			_, _ = fmt.Sscanf(tail, "%x", &v)
			g.UUID = g.UUID[:len(g.UUID)-12] + fmt.Sprintf("%012x", (v+m.GPU)&(1<<48-1))
		}
		to.GPU(g)
	}
	for _, c := range b.Calls {
		to.Call(c)
	}
	for _, f := range b.Funcs {
		f.Handle = movedHandle(f.Handle, m)
		to.Func(f)
	}
	for _, s := range b.Shapes {
		to.Shape(s)
	}
	for _, g := range b.Graphs {
		to.Graph(g)
	}
	for _, c := range b.Contexts {
		c.Handle = movedHandle(c.Handle, m)
		to.Context(c)
	}
	for _, q := range b.CUDAStreams {
		to.CUDAStream(movedHandle(q, m))
	}
	for _, pid := range b.Older {
		to.Older = append(to.Older, uint64(uint32(pid)+m.PID))
	}
	if b.Kind == schema.KindHost {
		to.Libraries, to.Coverage, to.Linux, to.Producer = b.Libraries, b.Coverage, b.Linux, b.Producer
	}
	for i := range b.Events {
		add(to, b, i, m)
	}
}

func add(to *schema.Builder, b *schema.Batch, i int, m *move) {
	switch b.Kind {
	case schema.KindMemory:
		e := b.Memory(i)
		e.Time += m.Time
		e.Ptr, e.Pool = movedHandle(e.Ptr, m), movedHandle(e.Pool, m)
		switch b.Calls[e.Call].Op {
		case schema.OpExport, schema.OpOpen, schema.OpPoolCreate, schema.OpPoolInfo, schema.OpMemInfo:
		default:
			e.Aux = movedHandle(e.Aux, m)
		}
		to.AddMemory(&e)
	case schema.KindLaunch:
		e := b.Launch(i)
		e.Time += m.Time
		to.AddLaunch(&e)
	case schema.KindCopy:
		e := b.Copy(i)
		e.Time += m.Time
		e.Dst, e.Src = movedHandle(e.Dst, m), movedHandle(e.Src, m)
		to.AddCopy(&e)
	case schema.KindSync:
		e := b.Sync(i)
		e.Time += m.Time
		e.CUDAEvent, e.Until = movedHandle(e.CUDAEvent, m), movedHandle(e.Until, m)
		to.AddSync(&e)
	}
}

func movedHandle(v uint64, m *move) uint64 {
	if v < 1<<16 {
		return v
	}
	return v + m.Handle
}

// BenchmarkTemplate copies every batch of the built-in profile.
func BenchmarkTemplate(b *testing.B) {
	var templates []*template
	events := 0
	for _, data := range messagesOf(b, pytorch) {
		t, err := newTemplate(data)
		if err != nil {
			b.Fatal(err)
		}
		templates = append(templates, t)
		events += t.events
	}
	c, dst := newCopier(), []byte(nil)
	h, m := &schema.Header{
		Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 1,
	}, &move{Time: 1, PID: 2, Handle: 3 << 47, GPU: 4}
	for b.Loop() {
		for _, t := range templates {
			dst = c.append(dst[:0], t, h, m)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
	b.ReportMetric(0, "ns/op")
}
