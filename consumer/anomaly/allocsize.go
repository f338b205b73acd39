package anomaly

import (
	"fmt"
	"math"
	"slices"
)

const (
	minBytes   = 256 << 20 // what is smaller harms nobody
	minSamples = 16
	maxSamples = 512
	minScore   = 8
	minSpread  = 0.25 // of log2(bytes): allocations that are all equal have a spread of 0
	adopted    = 64   // outliers after which a process has a new usual
)

// baseline is the last allocations of one process.
type baseline struct {
	bytes    []float32 // a ring once it is full
	oldest   int
	outliers int
	last     cooling // of the latest alert
	lastSize uint64
}

func (l *baseline) add(bytes uint64) {
	if len(l.bytes) < maxSamples {
		l.bytes = append(l.bytes, float32(bytes))
		return
	}
	l.bytes[l.oldest] = float32(bytes)
	l.oldest = (l.oldest + 1) % maxSamples
}

// allocSize judges one successful allocation of GPU memory. All but the largest cost one store.
func (d *Detector) allocSize(e *event) {
	l := &e.process.State.sizes
	if e.Bytes == 0 {
		return
	}
	if e.Bytes < minBytes || len(l.bytes) < minSamples {
		l.add(e.Bytes)
		return
	}
	median, score := l.judge(float32(e.Bytes))
	if score < minScore {
		l.add(e.Bytes)
		return
	}
	if l.outliers++; l.outliers > adopted {
		l.add(e.Bytes)
	}
	switch now := e.returned(); {
	case d.cfg.Warmup > 0 && elapsed(e.process.ID.Start, now) < d.cfg.Warmup:
		d.suppress(RuleAllocSize, "warmup")
	case l.lastSize == e.Bytes && l.last.covers(now, d.cfg.AllocSizeCooldown):
		d.history.repeat(l.last.alert, e.host())
		d.suppress(RuleAllocSize, "cooldown")
	default:
		l.lastSize = e.Bytes
		l.last = cooling{now, d.raise(d.allocSizeAlert(e, median, score))}
	}
}

// judge gives the median of the baseline in bytes and the robust z-score of bytes against it; a
// score that is surely below minScore is given as 0.
func (l *baseline) judge(bytes float32) (median, score float64) {
	const least = 1 << (minScore * minSpread) // times the median that it takes to fire
	below := 0
	for _, v := range l.bytes {
		if v <= bytes/least {
			below++
		}
	}
	if 2*below < len(l.bytes) {
		return 0, 0
	}
	var scratch [maxSamples]float64 // on the stack
	logs := scratch[:len(l.bytes)]
	for i, v := range l.bytes {
		logs[i] = math.Log2(float64(v))
	}
	center := medianOf(logs)
	for i, v := range logs {
		logs[i] = math.Abs(v - center)
	}
	spread := max(1.4826*medianOf(logs), minSpread) // 1.4826 MAD is a standard deviation's worth
	return math.Exp2(center), (math.Log2(float64(bytes)) - center) / spread
}

// medianOf sorts v.
func medianOf(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func (d *Detector) allocSizeAlert(e *event, median, score float64) Alert {
	a := d.alert(e, RuleAllocSize, Warning)
	a.Baseline = math.Round(median)
	a.Score = math.Round(score*100) / 100
	a.Message = fmt.Sprintf("%s (pid %d) on %s allocated %s at %s in thread %d (%s), %.0f times its usual %s: "+
		"look at what that thread loads or computes at that moment.",
		a.Comm, a.PID, a.Host, iec(a.Value), a.Address, a.TID, a.ThreadComm, a.Value/median, iec(median))
	return a
}
