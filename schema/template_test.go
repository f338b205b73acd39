package schema

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// samples are the messages of every released form, and a recorded run.
func samples(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	for i, data := range recorded(t) {
		all[fmt.Sprint("recorded ", i)] = data
	}
	paths, err := filepath.Glob("testdata/*.golden")
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

// TestTemplate: a copy is what Encode writes of the events after the move, for every sample.
func TestTemplate(t *testing.T) {
	moves := []Move{
		{},
		{Time: 1 << 40, PID: 70_000, Handle: 5 << 47, GPU: 0x1234_5678_9abc},
		{Time: 7, PID: 1, Handle: 1 << 20, GPU: 1},
	}
	decoder, copier := NewDecoder(), NewCopier()
	h := &Header{Cluster: "c", Host: "another", BootID: "boot", Run: 9, Seq: 12, ClockOffset: -5, Lost: [NumLosses]uint64{LossSpool: 3}}
	moved := 0
	for name, data := range samples(t) {
		var b Batch
		if err := decoder.Decode(data, &b); err != nil {
			t.Fatal(err)
		}
		if b.Kind == KindNone {
			continue
		}
		plain := NewBuilder(b.Kind)
		fill(plain, &b, &Move{})
		template := plain.Template()
		if template.Kind() != b.Kind || template.Events() != b.Events {
			t.Fatalf("%s: a template of %d %s events", name, template.Events(), template.Kind())
		}
		for _, m := range moves {
			there := NewBuilder(b.Kind)
			fill(there, &b, &m)
			var want, got Batch
			if err := NewDecoder().Decode(there.Encode(h), &want); err != nil {
				t.Fatal(err)
			}
			if err := NewDecoder().Decode(copier.Append(nil, template, h, &m), &got); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			moved += compare(t, name, &want, &got)
		}
	}
	if moved < 100_000 {
		t.Errorf("%d events were compared", moved)
	}
}

// compare compares what batches say, not how: widths of columns may differ.
func compare(t *testing.T, name string, want, got *Batch) int {
	t.Helper()
	n := want.Events
	for id := range columnID(numColumns) {
		if !reflect.DeepEqual(want.columns[id].Values(nil, n), got.columns[id].Values(nil, n)) {
			t.Fatalf("%s: column %s differs", name, columnKeys[id])
		}
		want.columns[id], got.columns[id] = Column{}, Column{}
	}
	want.nodes, got.nodes = nil, nil
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s:\n%+v, want\n%+v", name, got, want)
	}
	return n
}

// fill fills a Builder with a decoded batch, moved. It is the long way that a Template saves.
func fill(to *Builder, b *Batch, m *Move) {
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
	if b.Kind == KindHost {
		to.Libraries, to.Coverage, to.Linux, to.Producer = b.Libraries, b.Coverage, b.Linux, b.Producer
	}
	for i := range b.Events {
		add(to, b, i, m)
	}
}

func add(to *Builder, b *Batch, i int, m *Move) {
	switch b.Kind {
	case KindMemory:
		e := b.Memory(i)
		e.Time += m.Time
		e.Ptr, e.Pool = movedHandle(e.Ptr, m), movedHandle(e.Pool, m)
		switch b.Calls[e.Call].Op {
		case OpExport, OpOpen, OpPoolCreate, OpPoolInfo, OpMemInfo:
		default:
			e.Aux = movedHandle(e.Aux, m)
		}
		to.AddMemory(&e)
	case KindLaunch:
		e := b.Launch(i)
		e.Time += m.Time
		to.AddLaunch(&e)
	case KindCopy:
		e := b.Copy(i)
		e.Time += m.Time
		e.Dst, e.Src = movedHandle(e.Dst, m), movedHandle(e.Src, m)
		to.AddCopy(&e)
	case KindSync:
		e := b.Sync(i)
		e.Time += m.Time
		e.CUDAEvent, e.Until = movedHandle(e.CUDAEvent, m), movedHandle(e.Until, m)
		to.AddSync(&e)
	}
}

func movedHandle(v uint64, m *Move) uint64 {
	if v < 1<<16 {
		return v
	}
	return v + m.Handle
}

func BenchmarkTemplate(b *testing.B) {
	decoder := NewDecoder()
	var templates []*Template
	events := 0
	for _, data := range recorded(b) {
		var batch Batch
		if err := decoder.Decode(data, &batch); err != nil {
			b.Fatal(err)
		}
		builder := NewBuilder(batch.Kind)
		fill(builder, &batch, &Move{})
		templates = append(templates, builder.Template())
		events += batch.Events
	}
	copier, dst := NewCopier(), []byte(nil)
	h, m := &Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 1}, &Move{Time: 1, PID: 2, Handle: 3 << 47, GPU: 4}
	for b.Loop() {
		for _, t := range templates {
			dst = copier.Append(dst[:0], t, h, m)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
	b.ReportMetric(0, "ns/op")
}
