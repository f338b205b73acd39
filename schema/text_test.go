package schema_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// rowsText writes a batch as text: the header, what a heartbeat holds, and one line per event with
// its dictionaries looked up. examples/read_batch.py prints the same.
func rowsText(b *schema.Batch) string {
	var w strings.Builder
	fmt.Fprintf(&w, "v=%d k=%s cl=%s h=%s boot=%s run=%d seq=%d n=%d off=%d t0=%d t1=%d\nlost",
		b.Version, b.Kind, b.Cluster, b.Host, b.BootID, b.Run, b.Seq, b.Events, b.ClockOffset, b.First, b.Last)
	for cause, n := range b.Lost {
		if n > 0 {
			fmt.Fprintf(&w, " %s=%d", schema.Loss(cause), n)
		}
	}
	w.WriteByte('\n')
	for _, l := range b.Libraries {
		fmt.Fprintln(&w, strings.TrimSpace(fmt.Sprintf("lib %s %d %d %d %s",
			l.Path, l.Inode, l.Attached, l.Stepped, strings.Join(l.Absent, " "))))
	}
	for i := range b.Events {
		eventText(&w, b, i)
	}
	return w.String()
}

func eventText(w *strings.Builder, b *schema.Batch, i int) {
	switch b.Kind {
	case schema.KindMemory:
		e := b.Memory(i)
		fmt.Fprintf(w, "t=%d d=%d th=%s c=%s g=%s r=%d p=%d b=%d x=%d\n", e.Time, e.Duration, threadText(b, e.Thread),
			callText(b, e.Call), gpuText(b, e.GPU), e.Result, e.Ptr, e.Bytes, e.Aux)
	case schema.KindLaunch:
		e := b.Launch(i)
		s := b.Shapes[e.Shape]
		fmt.Fprintf(w, "t=%d th=%s g=%s s=%s,%s,%d,%d,%d,%d,%d,%d,%d,%d q=%d\n", e.Time, threadText(b, e.Thread),
			gpuText(b, e.GPU), callText(b, s.Call), b.Funcs[s.Func].Name, b.Funcs[s.Func].Handle, s.Grid[0], s.Grid[1],
			s.Grid[2], s.Block[0], s.Block[1], s.Block[2], s.SharedBytes, b.CUDAStreams[e.CUDAStream])
	case schema.KindCopy:
		e := b.Copy(i)
		fmt.Fprintf(w, "t=%d d=%d th=%s c=%s g=%s r=%d b=%d dst=%d src=%d q=%d\n", e.Time, e.Duration,
			threadText(b, e.Thread), callText(b, e.Call), gpuText(b, e.GPU), e.Result, e.Bytes, e.Dst, e.Src,
			b.CUDAStreams[e.CUDAStream])
	}
}

func threadText(b *schema.Batch, i uint32) string {
	th := b.Threads[i]
	p := b.Processes[th.Process]
	late := 0
	if p.Late {
		late = 1
	}
	return fmt.Sprintf("%d,%d,%d,%s,%s,%s,%d,%d,%s", p.PID, p.Start, p.UID, p.Comm, p.Exe, p.Container, late, th.TID, th.Comm)
}

func callText(b *schema.Batch, i uint32) string {
	c := b.Calls[i]
	return fmt.Sprintf("%s,%s,%s,%s", c.Symbol, c.Op, c.Class, c.Direction)
}

func gpuText(b *schema.Batch, i uint32) string {
	if i == 0 {
		return ","
	}
	return fmt.Sprintf("%s,%d", b.GPUs[i-1].UUID, b.GPUs[i-1].Ordinal)
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
