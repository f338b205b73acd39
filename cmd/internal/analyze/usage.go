package analyze

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gputap/gputap/consumer/analysis"
)

// curve is the live bytes of some groups of a process on one GPU.
type curve struct {
	gpu  int
	name string // "": all groups
	keep func(*analysis.Group) bool
}

// By are the words for how usage splits the memory of a GPU.
var splits = map[string]func(*analysis.Group) string{
	"gpu":    nil,
	"class":  func(g *analysis.Group) string { return g.Class.String() },
	"thread": func(g *analysis.Group) string { return strconv.Itoa(int(g.TID)) + " " + g.Thread },
	"symbol": func(g *analysis.Group) string { return g.Symbol },
	"stack":  func(g *analysis.Group) string { return strings.Join(g.Stack, " < ") },
	"name":   func(g *analysis.Group) string { return g.Name }, // of the variable
	byTorch:  func(g *analysis.Group) string { return g.Name }, // Tensors or Cached
}

// curves lists the curves of a process, those of a GPU together.
func curves(p *analysis.Process, by string) (list []curve) {
	split := splits[by]
	for gpu := range p.GPUs {
		if split == nil {
			list = append(list, curve{gpu, "", analysis.OnGPU(gpu)})
			continue
		}
		var names []string
		for i := range p.Groups {
			if p.Groups[i].GPU == gpu {
				names = append(names, split(&p.Groups[i]))
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			keep := func(g *analysis.Group) bool { return g.GPU == gpu && split(g) == name }
			list = append(list, curve{gpu, name, keep})
		}
	}
	return list
}

// points calls visit with the points of a curve. With a step, it keeps the highest of each step and the last of all.
func (c *curve) points(p *analysis.Process, step time.Duration, visit func(at time.Time, bytes uint64)) error {
	if step == 0 {
		return p.Usage(c.keep, func(at time.Time, bytes uint64) bool {
			visit(at, bytes)
			return true
		})
	}
	type point struct {
		at    time.Time
		bytes uint64
	}
	var highest, last point
	until := int64(math.MinInt64) // end of the step, in ns since 1970
	err := p.Usage(c.keep, func(at time.Time, bytes uint64) bool {
		last = point{at, bytes}
		switch now := at.UnixNano(); {
		case now >= until:
			if until != math.MinInt64 {
				visit(highest.at, highest.bytes)
			}
			highest, until = last, (now/int64(step)+1)*int64(step)
		case bytes > highest.bytes:
			highest = last
		}
		return true
	})
	if !last.at.IsZero() {
		if visit(highest.at, highest.bytes); last.at.After(highest.at) {
			visit(last.at, last.bytes)
		}
	}
	return err
}

// writeUsage writes the curves of all processes as one JSON object, a point at a time.
func (m *memory) writeUsage(to io.Writer, r *Range, by string, step time.Duration) error {
	out := bufio.NewWriterSize(to, 1<<16)
	fmt.Fprint(out, `{"processes":[`)
	for i, p := range m.split(r, by) {
		if i > 0 {
			fmt.Fprint(out, ",")
		}
		if err := writeCurves(out, p, by, step); err != nil {
			return err
		}
	}
	tail := result[struct{}](m, nil)
	findings, _ := json.Marshal(tail.Findings) // numbers
	missing, _ := json.Marshal(tail.Missing)   // texts
	notes, _ := json.Marshal(tail.Notes)       // likewise
	fmt.Fprintf(out, `],"findings":%s,"complete":%t,"missing":%s,"notes":%s}`+"\n", findings, tail.Complete, missing,
		notes)
	return out.Flush()
}

func writeCurves(out *bufio.Writer, p *analysis.Process, by string, step time.Duration) error {
	who, err := json.Marshal(whoOf(p))
	if err != nil {
		return err
	}
	_, _ = out.Write(who[:len(who)-1]) // out keeps its errors
	fmt.Fprint(out, `,"gpus":{`)
	before, gpus := -1, gpuNames(p)
	for _, c := range curves(p, by) {
		switch {
		case c.gpu == before:
			fmt.Fprint(out, ",")
		case before >= 0:
			closeGPU(out, by)
			fmt.Fprint(out, ",")
			openGPU(out, gpus[c.gpu], by)
		default:
			openGPU(out, gpus[c.gpu], by)
		}
		if before = c.gpu; by != byGPU {
			name, _ := json.Marshal(c.name) // a text
			fmt.Fprintf(out, `{"name":%s,`, name)
		}
		fmt.Fprint(out, `"points":[`)
		if err := writePoints(out, &c, p, step); err != nil {
			return err
		}
		if fmt.Fprint(out, "]"); by != byGPU {
			fmt.Fprint(out, "}")
		}
	}
	if before >= 0 {
		closeGPU(out, by)
	}
	fmt.Fprint(out, "}}")
	return nil
}

const byGPU = "gpu"

func openGPU(out *bufio.Writer, gpu, by string) {
	name, _ := json.Marshal(gpu) // a text
	fmt.Fprintf(out, "%s:{", name)
	if by != byGPU {
		fmt.Fprint(out, `"series":[`)
	}
}

func closeGPU(out *bufio.Writer, by string) {
	if by != byGPU {
		fmt.Fprint(out, "]")
	}
	fmt.Fprint(out, "}")
}

func writePoints(out *bufio.Writer, c *curve, p *analysis.Process, step time.Duration) error {
	var line []byte
	return c.points(p, step, func(at time.Time, bytes uint64) {
		if line == nil {
			line = make([]byte, 0, 48)
		} else {
			_ = out.WriteByte(',') // out keeps its errors
		}
		line = strconv.AppendInt(append(line[:0], '['), at.UnixNano(), 10)
		line = append(strconv.AppendUint(append(line, ','), bytes, 10), ']')
		_, _ = out.Write(line)
	})
}
