package schema_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// rowsText writes a batch as text: the header, the parts of a heartbeat, the graphs,
// and one line per event with its dictionaries looked up. examples/read_batch.py prints the same.
func rowsText(b *schema.Batch) string {
	var w strings.Builder
	fmt.Fprintf(&w, "v=%d k=%s cl=%s h=%s boot=%s run=%d seq=%d n=%d off=%d t0=%d t1=%d\nlost",
		b.Minor, b.Kind, b.Cluster, b.Host, b.BootID, b.Run, b.Seq, b.Events, b.ClockOffset, b.First, b.Last)
	for cause, n := range b.Lost {
		if n > 0 {
			fmt.Fprintf(&w, " %s=%d", schema.Loss(cause), n)
		}
	}
	w.WriteByte('\n')
	heartbeatText(&w, b)
	for _, g := range b.Graphs {
		fmt.Fprintf(&w, "graph %s partial=%d", funcText(b, g.Func), bit(g.Partial))
		for _, n := range g.Nodes {
			fmt.Fprintf(&w, " %s*%d", funcText(b, n.Func), n.Count)
		}
		w.WriteByte('\n')
	}
	if b.Kind == schema.KindNone {
		return w.String()
	}
	for i := range b.Events {
		eventText(&w, b, i)
	}
	return w.String()
}

func heartbeatText(w *strings.Builder, b *schema.Batch) {
	if b.Older != nil {
		fmt.Fprintf(w, "older %s\n", strings.ReplaceAll(strings.Trim(fmt.Sprint(b.Older), "[]"), " ", ","))
	}
	if b.Kind == schema.KindHost {
		fmt.Fprintf(w, "linux=%s prod=%s\n", b.Linux, b.Producer)
		for i := range b.GPUs {
			fmt.Fprintf(w, "gpu %s\n", gpuText(b, 1+uint32(i)))
		}
	}
	if b.Kind == schema.KindRank {
		fmt.Fprintf(w, "on=%s\n", b.Origin)
	}
	for _, l := range b.Libraries {
		fmt.Fprintf(w, "lib %s inode=%d attached=%d stepped=%d absent=%s failed=%s\n",
			l.Path, l.Inode, l.Attached, l.Stepped, strings.Join(l.Absent, ","), strings.Join(l.Failed, ","))
	}
	for _, c := range b.Coverage {
		fmt.Fprintf(w, "cover %s asked=%d outside=%s tables=%d\n",
			processText(&b.Processes[c.Process]), c.Asked, strings.Join(c.Outside, ","), c.ExportTables)
	}
	for _, e := range b.Ends {
		fmt.Fprintf(w, "end %s seq=%d through=%d\n", e.Kind, e.Seq, e.Through)
	}
}

// eventText writes each column of the event's kind.
func eventText(w *strings.Builder, b *schema.Batch, i int) {
	for id, c := range schema.Columns {
		if !slices.Contains(c.Kinds, b.Kind) {
			continue
		}
		if w.String()[w.Len()-1] != '\n' {
			w.WriteByte(' ')
		}
		fmt.Fprintf(w, "%s=%s", c.Key, valueText(b, c.Dictionary, schema.ColumnOf(b, id).At(i)))
	}
	w.WriteByte('\n')
}

// valueText is a number, or the fields of the dictionary entry that it points to.
func valueText(b *schema.Batch, d schema.Dictionary, v uint64) string {
	switch i := uint32(v); d {
	case schema.DictThreads:
		return threadText(b, i)
	case schema.DictCalls:
		return callText(b, i)
	case schema.DictGPUs:
		return gpuText(b, i)
	case schema.DictContexts:
		return contextText(b, i)
	case schema.DictShapes:
		s := b.Shapes[i]
		return fmt.Sprintf("%s,%s,%d,%d,%d,%d,%d,%d,%d", callText(b, s.Call), funcText(b, s.Func), s.Grid[0], s.Grid[1],
			s.Grid[2], s.Block[0], s.Block[1], s.Block[2], s.SharedBytes)
	case schema.DictCUDAStreams:
		return fmt.Sprint(b.CUDAStreams[i])
	case schema.DictStacks:
		if i == 0 {
			return ""
		}
		s := b.Stacks[i-1]
		return strings.Join(s.Frames, ",") + "," + s.Name
	}
	return fmt.Sprint(v)
}

func processText(p *schema.Process) string {
	return fmt.Sprintf("%d,%d,%d,%s,%s,%s,%d,%s,%d,%s,%s,%s,%s,%d,%d", p.PID, p.Start, p.UID, p.Comm, p.Exe,
		p.Container, bit(p.Late), p.User, p.NSPID, p.Cgroup, p.Pod, p.Unit, p.Job, p.Rank, p.Ranks)
}

func threadText(b *schema.Batch, i uint32) string {
	th := b.Threads[i]
	return fmt.Sprintf("%s,%d,%s", processText(&b.Processes[th.Process]), th.TID, th.Comm)
}

func callText(b *schema.Batch, i uint32) string {
	c := b.Calls[i]
	return fmt.Sprintf("%s,%s,%s,%s", c.Symbol, c.Op, c.Class, c.Direction)
}

func funcText(b *schema.Batch, i uint32) string {
	f := b.Funcs[i]
	return fmt.Sprintf("%s,%d,%d", f.Name, f.Handle, bit(f.Read))
}

func gpuText(b *schema.Batch, i uint32) string {
	if i == 0 {
		return ""
	}
	g := b.GPUs[i-1]
	return fmt.Sprintf("%s,%d,%d,%s,%s,%d", g.UUID, g.Ordinal, bit(g.Inferred), g.Name, g.Bus, g.Bytes)
}

// contextText is a context's handle and GPU.
func contextText(b *schema.Batch, i uint32) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprintf("%d,%s", b.Contexts[i-1].Handle, gpuText(b, b.Contexts[i-1].GPU))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// object is a msgpack map with its keys in order: key, value, key, value.
type object []any

// pack encodes a value that a Builder would not write.
func pack(v any) []byte {
	var buf bytes.Buffer
	packInto(msgpack.NewEncoder(&buf), v)
	return buf.Bytes()
}

func packInto(e *msgpack.Encoder, v any) {
	var err error
	switch v := v.(type) {
	case object:
		err = e.EncodeMapLen(len(v) / 2)
		for _, x := range v {
			packInto(e, x)
		}
	case []any:
		err = e.EncodeArrayLen(len(v))
		for _, x := range v {
			packInto(e, x)
		}
	case int:
		err = e.EncodeInt(int64(v))
	default:
		err = e.Encode(v)
	}
	if err != nil {
		panic(err)
	}
}
