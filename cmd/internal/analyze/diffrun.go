package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/analysis"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Figures are the sums over the processes of one comm and rank in one run.
type Figures struct {
	Processes   int      `json:"processes"`
	Peak        uint64   `json:"peak_bytes"` // of each GPU of each process, whenever it was
	Live        uint64   `json:"live_bytes"` // at the end
	Growth      *float64 `json:"growth_bytes_per_hour"`
	Allocations uint64   `json:"allocations"`
	Launches    uint64   `json:"launches"`
	CopyCalls   uint64   `json:"copy_calls"`
	CopyBytes   uint64   `json:"copy_bytes"`
}

// side is one of the two runs.
type side struct {
	Findings  Findings
	Missing   []string
	Notes     []string
	lacks     []string // tables of an Nsight export
	selection recording.Selection
	processes map[role]*work
}

// role is what processes of two runs have in common.
type role struct {
	comm string
	rank int64 // -1: none
}

func roleOf(w *Who) role {
	if w.Rank == nil {
		return role{w.Comm, -1}
	}
	return role{w.Comm, int64(*w.Rank)}
}

// work is the memory, launches and copies of the processes of a role.
type work struct {
	Figures
	groups map[groupName]float64
	copies map[string]*copied // by direction and size class
	seen   map[identity]bool
}

type identity struct {
	host, cluster string
	pid           uint32
	start         time.Time
}

// groupName names one figure of a group.
type groupName struct{ what, measure, name string }

// copied sums the copies of one direction and size class. The uses are in the order in which throughput prefers them.
type copied struct {
	calls, bytes uint64
	uses         [3]report.CopyUse
}

func (s *side) of(w *Who) *work {
	r := roleOf(w)
	one := s.processes[r]
	if one == nil {
		one = &work{groups: map[groupName]float64{}, copies: map[string]*copied{}, seen: map[identity]bool{}}
		s.processes[r] = one
	}
	one.seen[identity{w.Host, w.Cluster, w.PID, w.Start.Time}] = true
	one.Processes = len(one.seen)
	return one
}

// readSide reads a recording three times: for its memory, its launches and its copies.
func readSide(ctx context.Context, path string, r *Range, log *slog.Logger) (*side, error) {
	s, err := source.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	m, err := readMemory(ctx, s, r, false, log)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	one := &side{Findings: m.Findings, Missing: m.Missing, Notes: s.Notes(), selection: s.Selection,
		processes: map[role]*work{}}
	if s.Nsight != nil {
		one.lacks = s.Unrecorded(schema.KindMemory, schema.KindLaunch, schema.KindCopy)
	}
	for _, p := range m.selected(r) {
		if err := one.addMemory(p, s.End); err != nil {
			return nil, fmt.Errorf("analyze %s: %w", path, err)
		}
	}
	launches, missing, err := readRates(ctx, s, r, func() consumer.Stateful { return launch.New(launch.Config{}) },
		[]schema.Kind{schema.KindLaunch, schema.KindCopy, schema.KindSync}, log)
	if err != nil {
		return nil, err
	}
	for _, p := range launches.Processes {
		one.addLaunches(p)
	}
	one.lack(missing)
	copies, missing, err := readRates(ctx, s, r, func() consumer.Stateful { return bandwidth.New(bandwidth.Config{}) },
		nil, log)
	if err != nil {
		return nil, err
	}
	one.lack(missing)
	for _, p := range copies.Processes {
		one.addCopies(p)
	}
	return one, nil
}

// lack adds sentences about missing data, each once.
func (s *side) lack(missing []string) {
	for _, text := range missing {
		if !slices.Contains(s.Missing, text) {
			s.Missing = append(s.Missing, text)
		}
	}
}

func (s *side) addMemory(p *analysis.Process, end time.Time) error {
	w := s.of(new(whoOf(p)))
	peaks, err := p.Watermark()
	leaks, err2 := p.Leakage()
	perHour, known, err3 := growth(p, end)
	err4 := p.Allocations(func(g *analysis.Group, bytes uint64) {
		w.Allocations++
		w.groups[groupName{whatMemory, measureAllocations, nameOfMemory(g, bytes)}]++
	})
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	for i := range peaks {
		w.Peak += peaks[i].Bytes
		w.addLive(measurePeak, peaks[i].Live)
	}
	for i := range leaks {
		w.Live += leaks[i].Bytes
		w.addLive(measureLive, leaks[i].Live)
	}
	if known {
		if w.Growth == nil {
			w.Growth = new(float64)
		}
		*w.Growth += perHour
	}
	return nil
}

func (w *work) addLive(measure string, live []analysis.Allocation) {
	for i := range live {
		a := &live[i]
		w.groups[groupName{whatMemory, measure, nameOfMemory(a.Group, a.Bytes)}] += float64(a.Bytes)
	}
}

// nameOfMemory returns the name of a group of memory. Its size class is the power of two that is not above the bytes.
func nameOfMemory(g *analysis.Group, size uint64) string {
	class := uint64(0)
	if size > 0 {
		class = 1 << (bits.Len64(size) - 1)
	}
	parts := []string{g.Class.String(), strings.TrimSuffix("thread "+g.Thread, "thread "), g.Symbol,
		app.Bytes(class) + " and more"}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

func (s *side) addLaunches(p *report.Process) {
	if len(p.Launches) == 0 {
		return
	}
	w := s.of(new(whoIs(p)))
	for kernel, n := range p.Launches {
		w.Launches += n
		w.groups[groupName{whatKernel, measureLaunches, kernel}] += float64(n)
	}
}

func (s *side) addCopies(p *report.Process) {
	if len(p.CopyGroups) == 0 {
		return
	}
	w := s.of(new(whoIs(p)))
	for i := range p.CopyGroups {
		g := &p.CopyGroups[i]
		name := g.Direction + " " + g.Size
		c := w.copies[name]
		if c == nil {
			c = &copied{}
			w.copies[name] = c
		}
		w.CopyCalls, w.CopyBytes = w.CopyCalls+g.Calls, w.CopyBytes+g.Bytes
		c.calls, c.bytes = c.calls+g.Calls, c.bytes+g.Bytes
		for at, use := range []*report.CopyUse{&g.Sync, g.Ended, g.Behind} {
			if use != nil {
				c.uses[at].Bytes += use.Bytes
				c.uses[at].Seconds += use.Seconds
			}
		}
		w.groups[groupName{whatCopy, measureBytes, name}] = float64(c.bytes)
		w.groups[groupName{whatCopy, measureCalls, name}] = float64(c.calls)
	}
}

// throughput returns the bytes per second of the synchronous copies, else of those whose end a wait showed. A nil c has
// none.
func (c *copied) throughput() *float64 {
	if c == nil {
		return nil
	}
	for _, u := range c.uses {
		if u.Seconds > 0 && u.Bytes > 0 {
			return new(float64(u.Bytes) / u.Seconds)
		}
	}
	return nil
}

// unrecorded names the kinds of events, and the tables of an Nsight export, that s lacks and that the other run has.
func (s *side) unrecorded(other *side) (texts []string) {
	for _, kind := range []schema.Kind{schema.KindMemory, schema.KindLaunch, schema.KindCopy} {
		if !has(&s.selection, kind) && has(&other.selection, kind) {
			texts = append(texts, fmt.Sprintf("events of the kind %s are not recorded", kind))
		}
	}
	for _, text := range s.lacks {
		if !slices.Contains(other.lacks, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

func has(s *recording.Selection, kind schema.Kind) bool {
	return len(s.Kinds) == 0 || slices.Contains(s.Kinds, kind)
}

func (r role) compare(to role) int {
	return cmp.Or(cmp.Compare(r.comm, to.comm), cmp.Compare(r.rank, to.rank))
}
