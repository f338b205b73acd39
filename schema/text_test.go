package schema_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// rowsText writes a batch as text: the header, what belongs to no event (a heartbeat's parts, graphs),
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
	for _, l := range b.Libraries {
		fmt.Fprintf(w, "lib %s inode=%d attached=%d stepped=%d absent=%s failed=%s\n",
			l.Path, l.Inode, l.Attached, l.Stepped, strings.Join(l.Absent, ","), strings.Join(l.Failed, ","))
	}
	for _, c := range b.Coverage {
		fmt.Fprintf(w, "cover %s asked=%d outside=%s tables=%d\n",
			processText(&b.Processes[c.Process]), c.Asked, strings.Join(c.Outside, ","), c.ExportTables)
	}
}

func eventText(w *strings.Builder, b *schema.Batch, i int) {
	switch b.Kind {
	case schema.KindMemory:
		e := b.Memory(i)
		fmt.Fprintf(w, "t=%d d=%d th=%s c=%s g=%s r=%d p=%d b=%d x=%d cx=%s po=%d\n", e.Time, e.Duration, threadText(b, e.Thread),
			callText(b, e.Call), gpuText(b, e.GPU), e.Result, e.Ptr, e.Bytes, e.Aux, contextText(b, e.Context), e.Pool)
	case schema.KindLaunch:
		e := b.Launch(i)
		s := b.Shapes[e.Shape]
		fmt.Fprintf(w, "t=%d th=%s g=%s s=%s,%s,%d,%d,%d,%d,%d,%d,%d q=%d\n", e.Time, threadText(b, e.Thread),
			gpuText(b, e.GPU), callText(b, s.Call), funcText(b, s.Func), s.Grid[0], s.Grid[1],
			s.Grid[2], s.Block[0], s.Block[1], s.Block[2], s.SharedBytes, b.CUDAStreams[e.CUDAStream])
	case schema.KindCopy:
		e := b.Copy(i)
		fmt.Fprintf(w, "t=%d d=%d th=%s c=%s g=%s r=%d b=%d dst=%d src=%d q=%d\n", e.Time, e.Duration,
			threadText(b, e.Thread), callText(b, e.Call), gpuText(b, e.GPU), e.Result, e.Bytes, e.Dst, e.Src,
			b.CUDAStreams[e.CUDAStream])
	case schema.KindSync:
		e := b.Sync(i)
		fmt.Fprintf(w, "t=%d d=%d th=%s c=%s g=%s r=%d p=%d x=%d q=%d v=%d\n", e.Time, e.Duration,
			threadText(b, e.Thread), callText(b, e.Call), gpuText(b, e.GPU), e.Result, e.CUDAEvent, e.Until,
			b.CUDAStreams[e.CUDAStream], e.Elapsed)
	}
}

func processText(p *schema.Process) string {
	return fmt.Sprintf("%d,%d,%d,%s,%s,%s,%d,%s,%d,%s,%s,%s", p.PID, p.Start, p.UID, p.Comm, p.Exe, p.Container, bit(p.Late),
		p.User, p.NSPID, p.Cgroup, p.Pod, p.Unit)
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
	return fmt.Sprintf("%s,%d,%d,%s,%s", g.UUID, g.Ordinal, bit(g.Inferred), g.Name, g.Bus)
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

// pack writes what a Builder never would.
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
