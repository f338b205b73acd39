package event

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ianlancetaylor/demangle"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/schema"
)

// Event is one CUDA call. Keys that a kind lacks are left out.
type Event struct {
	Time      app.Time `json:"time"` // entry of the call, wall clock of the host
	Cluster   string   `json:"cluster"`
	Host      string   `json:"host"`
	PID       uint32   `json:"pid"`
	TID       uint32   `json:"tid"`
	Comm      string   `json:"comm"` // of the process
	Kind      string   `json:"kind"`
	Op        string   `json:"op"` // docs/events.md
	Symbol    string   `json:"symbol"`
	Class     string   `json:"class,omitempty"` // of the memory; "" if the call does not tell it
	Direction string   `json:"direction,omitempty"`
	GPU       string   `json:"gpu"`    // UUID; "" if unknown
	Result    uint32   `json:"result"` // CUresult; 0 for launches
	Bytes     uint64   `json:"bytes,omitempty"`
	Address   string   `json:"address,omitempty"`
	Seconds   float64  `json:"seconds,omitempty"` // in the call; launches have none
	Kernel    string   `json:"kernel,omitempty"`
	Grid      []uint32 `json:"grid,omitempty"`
	Block     []uint32 `json:"block,omitempty"`
}

// Reader reads the events of batches. It keeps the names of kernels, which take longer to demangle than all else. One
// goroutine uses a Reader. The zero Reader is ready.
type Reader struct {
	kernels map[string]string // by mangled name
	bytes   int               // of kernels
}

// mostKernelBytes is what a Reader keeps before it starts anew. Programs with PyTorch have less than 1 MiB of names.
const mostKernelBytes = 8 << 20

// kernel returns the readable name of a kernel. The texts of a batch outlive it, so the key needs no copy.
func (r *Reader) kernel(mangled string) string {
	name, known := r.kernels[mangled]
	if known {
		return name
	}
	name = cmp.Or(demangle.Filter(mangled, demangle.MaxLength(10)), "unknown") // a short name may expand to a huge one
	if r.bytes += len(mangled) + len(name); r.kernels == nil || r.bytes > mostKernelBytes {
		r.kernels, r.bytes = map[string]string{}, len(mangled)+len(name)
	}
	r.kernels[mangled] = name
	return name
}

// Of reads event i of a batch. A column that the kind lacks reads as 0.
func (r *Reader) Of(b *schema.Batch, i int) Event {
	thread := &b.Threads[b.Thread().At(i)]
	e := Event{
		Time: app.Time{Time: b.Wall(schema.KTime(b.Time().At(i)))}, Cluster: b.Cluster, Host: b.Host,
		Kind: b.Kind.String(), PID: b.Processes[thread.Process].PID, TID: thread.TID,
		Comm: b.Processes[thread.Process].Comm, Result: uint32(b.Result().At(i)), Bytes: b.Bytes().At(i),
		Seconds: float64(b.Duration().At(i)) / 1e9,
	}
	if gpu := b.GPU().At(i); gpu != 0 {
		e.GPU = b.GPUs[gpu-1].UUID
	}
	call := b.Call().At(i)
	if b.Kind == schema.KindLaunch {
		shape := &b.Shapes[b.Shape().At(i)]
		call = uint64(shape.Call)
		e.Kernel = r.kernel(b.Funcs[shape.Func].Name)
		e.Grid, e.Block = shape.Grid[:], shape.Block[:]
	} else if ptr := b.Ptr().At(i); ptr != 0 {
		e.Address = fmt.Sprintf("%#x", ptr)
	}
	c := &b.Calls[call]
	e.Op, e.Symbol, e.Direction = c.Op.String(), c.Symbol, c.Direction.String()
	if !freesAny(c, e.Bytes) {
		e.Class = c.Class.String()
	}
	return e
}

// freesAny reports whether a call frees memory of several classes: cuMemFree and cuMemFreeAsync take device, managed
// and pool memory, and that of graphs. Exports of Nsight Systems name the class and the bytes of freed memory.
func freesAny(c *schema.CallRef, bytes uint64) bool {
	return c.Op == schema.OpFree && bytes == 0 && (c.Class == schema.ClassDevice || c.Class == schema.ClassPool)
}

// Line formats an event for a person.
func (e *Event) Line() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s  %s  %d %s  %s", e.Time.UTC().Format("15:04:05.000000"), e.Host, e.PID, e.Comm,
		demangle.Filter(e.Symbol, demangle.NoParams, demangle.MaxLength(10)))
	for _, word := range []string{opTexts[e.Op], e.Class, e.Direction} {
		if word != "" {
			out.WriteString("  " + word)
		}
	}
	if e.Bytes > 0 {
		out.WriteString("  " + app.Bytes(e.Bytes))
	}
	if e.Address != "" {
		out.WriteString("  at " + e.Address)
	}
	if e.Kernel != "" {
		fmt.Fprintf(&out, "  %s <<<%s, %s>>>", app.Shorten(e.Kernel, 60), dimensions(e.Grid), dimensions(e.Block))
	}
	if e.GPU != "" {
		fmt.Fprintf(&out, "  %.12s", e.GPU)
	}
	if e.Seconds > 0 {
		fmt.Fprintf(&out, "  %s", time.Duration(e.Seconds*1e9))
	}
	if e.Result != 0 {
		fmt.Fprintf(&out, "  failed: %s", report.ResultText(e.Result))
	}
	return strings.Map(func(r rune) rune { // a program may have any name
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, out.String())
}

// opTexts are the ops that the symbol does not tell.
var opTexts = map[string]string{
	schema.OpBlockAlloc.String(): "block taken", schema.OpBlockFree.String(): "block given back",
}

// Kinds are the kinds that have events.
func Kinds() (words []string) {
	for kind := schema.KindMemory; kind < schema.KindHost; kind++ {
		words = append(words, kind.String())
	}
	return words
}

// ParseKind returns the kind of one of the words of Kinds.
func ParseKind(word string) (kind schema.Kind, found bool) {
	kind = schema.ParseKind(word)
	return kind, kind > schema.KindNone && kind < schema.KindHost
}

// NewEncoder returns an encoder of events, one line each.
func NewEncoder(out io.Writer) *json.Encoder {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // kernel names have angle brackets
	return encoder
}

func dimensions(d []uint32) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(d), " ", "×"), "[]")
}
