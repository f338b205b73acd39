package naive

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

const minute = schema.KTime(60e9)

// grown is a process that allocates equal amounts in one thread and frees nothing, on a GPU of a known size. It is
// judged by its last 30 windows of a minute, and has grown in all of them.
type grown struct {
	from      schema.KTime // begin of the first window
	windows   schema.KTime
	events    []event
	slope     float64 // bytes of a window
	bytes     uint64
	old       []event // older than a quarter of the last 30 windows
	suspected uint64
}

func grownBy(events []event, from schema.KTime, windows schema.KTime) grown {
	g := grown{from: from, windows: windows, events: events}
	var slopes []float64
	for i := windows - 30; i < windows; i++ {
		for j := i + 1; j < windows; j++ {
			slopes = append(slopes, float64(g.level(from+j*minute)-g.level(from+i*minute))/float64(j-i))
		}
	}
	slices.Sort(slopes)
	g.slope = (slopes[(len(slopes)-1)/2] + slopes[len(slopes)/2]) / 2
	g.bytes = uint64(math.Round(g.slope * float64(windows-1)))
	for _, e := range events {
		if at := e.returned(); at >= from && at < from+(windows-30/4)*minute {
			g.old = append(g.old, e)
			g.suspected += e.Bytes
		}
	}
	g.suspected = min(g.suspected, g.bytes)
	return g
}

// level returns the live bytes at a time.
func (g *grown) level(at schema.KTime) (sum uint64) {
	for i := range g.events {
		if g.events[i].returned() <= at {
			sum += g.events[i].Bytes
		}
	}
	return sum
}

// full returns the seconds until the GPU is full.
func (g *grown) full() float64 {
	free := g.events[0].gpu.Bytes - g.level(math.MaxUint64)
	return math.Round(float64(free) / g.slope * 60)
}

func (g *grown) why() []string {
	return []string{bytesText(g.bytes), fmt.Sprintf("%dm0s", g.windows), bytesText(60 * g.slope),
		bytesText(g.suspected), "7m0s"}
}

// growth is about a process that grows, when it has done so for 30 windows.
func (f *finding) growth(a Object) {
	g := grownBy(f.events, f.From, 30)
	limit := max(256<<20, f.events[0].gpu.Bytes/200)
	full := time.Duration(g.full() * 1e9).Round(time.Minute).String()
	first := &g.old[0]
	a["bytes"], a["value"], a["baseline"], a["score"] = g.suspected, g.bytes, limit, float64(g.bytes*100/limit)/100
	a["tid"], a["thread_comm"] = first.thread.TID, first.thread.Comm
	a["evidence"] = f.between(schema.KindMemory, f.From, f.At)
	a["message"] = slices.Concat([]string{fmt.Sprint(f.PID)}, g.why(), []string{strings.TrimSuffix(full, "0s"),
		bytesText(uint64(len(g.old)) * first.Bytes), fmt.Sprint(len(g.old)), bytesText(first.Bytes),
		fmt.Sprint(first.thread.TID)})
}

// Growth returns the verdict about a process that grows on its GPU since a time, after so many windows, without its
// peak. In the place of a sentence is the list of its numbers. PerHour are the bytes by which it grows in an hour.
func (l *Log) Growth(host string, pid uint32, from schema.KTime, windows int) (verdict Object, perHour uint64) {
	var events []event
	for _, e := range l.events {
		if e.Host == host && e.id.PID == pid && e.kind == schema.KindMemory {
			events = append(events, e)
		}
	}
	g := grownBy(events, from, schema.KTime(windows))
	first := &g.old[0]
	perHour = uint64(math.Round(60 * g.slope))
	return Object{"gpu": first.gpu.UUID, "state": "suspect", "suspect_bytes": g.suspected,
		"slope_bytes_per_hour": perHour, "since": first.Wall(from), "full_in_seconds": g.full(), "why": g.why(),
		"groups": []any{Object{"tid": first.thread.TID, "thread": first.thread.Comm, "class": first.call.Class.String(),
			"size_class": first.Bytes, "bytes": uint64(len(g.old)) * first.Bytes, "allocations": len(g.old),
			"oldest_seconds": float64(from+g.windows*minute-first.returned()) / 1e9}}}, perHour
}
