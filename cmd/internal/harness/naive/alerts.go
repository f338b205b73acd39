package naive

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gputap/gputap/schema"
)

// Finding is what a test planted: a rule, whom it concerns, and when it began and fired.
type Finding struct {
	Rule, Severity string
	Host           string
	PID            uint32 // 0: the host
	GPU            string
	From, At       schema.KTime
}

// finding computes the figures of one Finding.
type finding struct {
	Finding
	header schema.Header
	events []event // of the process before At
	log    *Log
}

// Alerts returns the alerts of findings on hosts of one boot and cluster, the latest first, without their ids. In the
// place of a message is the list of its numbers.
func (l *Log) Alerts(findings []Finding) (list []Object) {
	for _, planted := range findings {
		f := finding{Finding: planted, log: l}
		for _, e := range l.events {
			if e.Host != f.Host {
				continue
			}
			if f.header = e.Header; e.id.PID == f.PID && e.returned() <= f.At {
				f.events = append(f.events, e)
			}
		}
		list = append(list, f.alert())
	}
	slices.SortStableFunc(list, func(a, b Object) int { return b["time"].(time.Time).Compare(a["time"].(time.Time)) })
	return list
}

func (f *finding) alert() Object {
	a := Object{"state": "firing", "rule": f.Rule, "severity": f.Severity, "cluster": f.header.Cluster, "host": f.Host,
		"time": f.header.Wall(f.At), "since": f.header.Wall(f.From), "gpu": f.GPU, "pid": f.PID, "comm": "", "uid": 0,
		"user": "", "container": "", "pod": "", "unit": "", "job": "", "tid": 0, "thread_comm": "", "address": "",
		"bytes": 0, "symbol": "", "value": 0, "baseline": 0, "score": 0, "repeats": 0}
	if len(f.events) > 0 {
		p := &f.events[0].process
		a["comm"], a["uid"], a["user"], a["start"] = p.Comm, p.UID, p.User, f.header.Wall(p.Start)
	}
	switch f.Rule {
	case "alloc_size":
		f.size(a)
	case "oom", "oom_recovered":
		f.memoryFailed(a)
	case "alloc_rate":
		f.rate(a, schema.KindMemory)
	case "launch_collapse":
		f.rate(a, schema.KindLaunch)
	case "copy_regression":
		f.slower(a)
	case "pageable_copies":
		f.pageable(a)
	case "telemetry_loss":
		f.loss(a)
	case "leak_growth":
		f.growth(a)
	case "unfreed_at_exit":
		f.unfreed(a)
	}
	return a
}

func hundredths(v float64) float64 { return math.Round(v*100) / 100 }

// bytesText is an amount with four digits.
func bytesText[N uint64 | float64](n N) string {
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; v >= 1024 && len(units) > 1; units = units[1:] {
		v /= 1024
	}
	return fmt.Sprintf("%.4g %s", v, units[0])
}

// evidence names the batches from one to another one.
func evidence(kind schema.Kind, of *schema.Header, seq, from, to uint64) Object {
	return Object{"host": of.Host, "boot": of.BootID, "run": of.Run, "kind": kind.String(), "seq": seq,
		"seq_from": from, "seq_to": to}
}

// between returns the seqs of the batches of a kind with events in a time.
func (f *finding) between(kind schema.Kind, from, to schema.KTime) Object {
	first, last := uint64(0), uint64(0)
	for i := range f.log.batches {
		if b := &f.log.batches[i]; b.Host == f.Host && b.Kind == kind && b.First < to && b.Last >= from {
			first, last = cmp.Or(first, b.Seq), b.Seq
		}
	}
	return evidence(kind, &f.header, last, first, last)
}

// call adds the facts of a call.
func (f *finding) call(a Object, e *event) {
	a["tid"], a["thread_comm"], a["symbol"] = e.thread.TID, e.thread.Comm, e.call.Symbol
	a["bytes"], a["value"], a["address"] = e.Bytes, e.Bytes, address(e.Ptr)
	a["evidence"] = evidence(e.kind, &e.Header, e.Seq, e.Seq, e.Seq)
}

func (f *finding) size(a Object) {
	big, before := &event{}, []*event{}
	for i := range f.events {
		if e := &f.events[i]; e.Bytes > big.Bytes {
			big = e
		}
	}
	largest := uint64(1 << 20)
	for i := range f.events {
		if e := &f.events[i]; e.call.Op == schema.OpAlloc && e.Time < big.Time {
			before, largest = append(before, e), max(largest, e.Bytes)
		}
	}
	f.call(a, big)
	times := float64(big.Bytes) / float64(largest)
	a["baseline"], a["score"] = largest, hundredths(times)
	a["message"] = []string{fmt.Sprint(f.PID), bytesText(big.Bytes), address(big.Ptr), fmt.Sprint(big.thread.TID),
		fmt.Sprintf("%.0f", times), fmt.Sprint(len(before)), bytesText(largest)}
}

// memoryFailed is about allocations that failed. Afterwards one succeeded, or none.
func (f *finding) memoryFailed(a Object) {
	var failed []*event
	var after *event
	for i := range f.events {
		switch e := &f.events[i]; {
		case e.Result == 2:
			failed = append(failed, e)
		case len(failed) > 0:
			after = e
		}
	}
	first := failed[0]
	f.call(a, first)
	a["repeats"] = len(failed) - 1
	a["evidence"].(Object)["seq_to"] = failed[len(failed)-1].Seq
	numbers := []string{fmt.Sprint(f.PID), bytesText(first.Bytes), fmt.Sprint(first.thread.TID)}
	if len(failed) > 2 {
		numbers = append(numbers, fmt.Sprint(len(failed)-1))
	}
	if after != nil {
		a["message"] = append(numbers, fmt.Sprintf("%.3g", float64(after.returned()-first.returned())/1e9),
			bytesText(after.Bytes))
		return
	}
	a["message"] = append(append(numbers, "10s"), f.holders(failed[len(failed)-1].returned())...)
}

// holders are what the process held of the GPU at a time, and the others that held most.
func (f *finding) holders(at schema.KTime) (numbers []string) {
	held := map[uint32]uint64{}
	var pids []uint32
	for _, e := range f.log.events {
		if e.kind == schema.KindMemory && e.gpu != nil && e.gpu.UUID == f.GPU && e.Result == 0 && e.Time < at {
			if held[e.id.PID] += e.Bytes; e.id.PID != f.PID && !slices.Contains(pids, e.id.PID) {
				pids = append(pids, e.id.PID)
			}
		}
	}
	slices.SortFunc(pids, func(a, b uint32) int { return cmp.Compare(held[b], held[a]) })
	numbers = append(numbers, bytesText(held[f.PID]))
	for _, pid := range pids[:min(3, len(pids))] {
		numbers = append(numbers, fmt.Sprint(pid), bytesText(held[pid]))
	}
	return numbers
}

// windows sums a measure of the events over each ten seconds.
func (f *finding) windows(measure func(*event) float64) map[uint64]float64 {
	sums := map[uint64]float64{}
	for i := range f.events {
		e := &f.events[i]
		sums[uint64(e.Time)/10e9] += measure(e)
	}
	return sums
}

// usual is the median of the windows in the ten minutes of activity before the finding began.
func (f *finding) usual(sums map[uint64]float64) float64 {
	var all []float64
	for w := uint64(f.From)/10e9 - 1; len(all) < 60 && w > 0; w-- {
		if sums[w] > 0 {
			all = append(all, sums[w])
		}
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// rate is about allocations or launches of a second.
func (f *finding) rate(a Object, kind schema.Kind) {
	sums := f.windows(func(e *event) (n float64) {
		switch {
		case e.kind != kind || kind == schema.KindMemory && e.call.Op != schema.OpAlloc:
			return 0
		case e.graph == nil:
			return 1
		}
		for _, node := range e.graph.nodes {
			n += float64(node.count)
		}
		return n
	})
	now, usual := sums[uint64(f.At)/10e9-1], f.usual(sums)
	a["value"], a["baseline"], a["score"] = now/10, usual/10, hundredths(now/usual)
	a["evidence"] = f.between(kind, f.From, f.At)
	a["message"] = []string{fmt.Sprint(f.PID), fmt.Sprintf("%.0f", now/10),
		fmt.Sprintf("%.3g", hundredths(now/usual)), fmt.Sprintf("%.3g", usual/10)}
	if kind == schema.KindLaunch {
		a["message"] = []string{fmt.Sprint(f.PID), fmt.Sprintf("%.0f", now/10),
			fmt.Sprintf("%.3g", 100*hundredths(now/usual)), fmt.Sprintf("%.0f", usual/10),
			fmt.Sprint(uint64(f.At-f.From) / 1e9)}
	}
}
