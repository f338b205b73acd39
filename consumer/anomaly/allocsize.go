package anomaly

import (
	"fmt"
	"math"
	"slices"
)

const (
	minBytes        = 256 << 20 // smaller allocations are not worth an alert
	minSamples      = 16
	maxSamples      = 512
	minScore        = 8
	minSpread       = 0.25 // of log2(bytes); the spread of equal allocations would be 0
	outliersToAdopt = 64   // after this many outliers the baseline accepts outliers
)

// baseline is the latest allocation sizes of one process.
type baseline struct {
	bytes    []float32 // a ring buffer once it is full
	oldest   int
	outliers int
	last     cooldown // of the latest alert
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

// allocSize judges one successful allocation of GPU memory. Small allocations cost one store.
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
	if l.outliers++; l.outliers > outliersToAdopt {
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
		l.last = cooldown{now, d.raise(d.allocSizeAlert(e, median, score))}
	}
}

// judge returns the median of the baseline in bytes and the robust z-score of bytes against it. It may return 0 for a
// score below minScore.
func (l *baseline) judge(bytes float32) (median, score float64) {
	const least = 1 << (minScore * minSpread) // an alert needs at least this multiple of the median
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
	// 1.4826 MAD equal one standard deviation of a normal distribution
	spread := max(1.4826*medianOf(logs), minSpread)
	return math.Exp2(center), (math.Log2(float64(bytes)) - center) / spread
}

// medianOf sorts v and returns its median.
func medianOf(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func (d *Detector) allocSizeAlert(e *event, median, score float64) Alert {
	a := d.alert(e, RuleAllocSize, Warning)
	a.Baseline = math.Round(median)
	a.Score = math.Round(score*100) / 100
	a.Message = fmt.Sprintf("%s (pid %d) on %s allocated %s at %s in thread %d (%s), %.0f times its median of %s. "+
		"Check what that thread loads or computes at that time.",
		a.Comm, a.PID, a.Host, iec(a.Value), a.Address, a.TID, a.ThreadComm, a.Value/median, iec(median))
	return a
}
