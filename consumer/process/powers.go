package process

import (
	"math"
	"math/bits"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/gputap/gputap/consumer/snapshot"
)

// Powers is a distribution of values. Bucket e counts the values above 2^(e-1) and up to 2^e.
type Powers struct {
	Count uint64
	Sum   uint64
	Most  uint64   // of the values that were observed one by one
	first int      // exponent of counts[0]
	all   []uint64 // counts of the buckets; the first and the last are not 0
}

// MaxHistograms is the limit of histograms per metric family: each has up to 15 series.
const MaxHistograms = MaxSeries / 15

// Bounds of the exponents. Values outside count in the outermost buckets.
const (
	minPower = -30
	maxPower = 63
)

// Power returns the bucket of a whole number; 0 counts as 1.
func Power(v uint64) int { return bits.Len64(max(v, 1) - 1) }

// SecondsPower returns the bucket of a number of ns, in seconds.
func SecondsPower(ns uint64) int {
	l := bits.Len64(ns)
	power := l - minNanoBits
	if ns > secondBounds[l] {
		power++
	}
	return max(power, minPower)
}

// secondBounds has, by the bits of a number of ns, the largest one that is not above a power of two of seconds.
var secondBounds = func() (bounds [65]uint64) {
	for l := range bounds {
		bounds[l] = uint64(math.Ldexp(1e9, l-minNanoBits))
	}
	return bounds
}()

// minNanoBits is the bits of 1e9: 1 s is the only power of two of seconds with that many.
const minNanoBits = 30

// Observe counts one value.
func (p *Powers) Observe(bucket int, value uint64) {
	p.Most = max(p.Most, value)
	p.ObserveAll(bucket, 1, value)
}

// ObserveAll counts n values of one bucket by their sum. It leaves Most as it is.
func (p *Powers) ObserveAll(bucket int, n, sum uint64) {
	if n == 0 {
		return
	}
	p.Count += n
	p.Sum += sum
	*p.at(bucket) += n
}

func (p *Powers) at(bucket int) *uint64 {
	bucket = min(max(bucket, minPower), maxPower)
	switch {
	case len(p.all) == 0:
		p.first, p.all = bucket, append(p.all, 0)
	case bucket < p.first:
		p.all = slices.Insert(p.all, 0, make([]uint64, p.first-bucket)...)
		p.first = bucket
	case bucket >= p.first+len(p.all):
		p.all = append(p.all, make([]uint64, bucket+1-p.first-len(p.all))...)
	}
	return &p.all[bucket-p.first]
}

// Add adds more.
func (p *Powers) Add(more *Powers) {
	p.Count += more.Count
	p.Sum += more.Sum
	p.Most = max(p.Most, more.Most)
	for i, n := range more.all {
		if n > 0 {
			*p.at(more.first + i) += n
		}
	}
}

// Clone returns a copy for a report.
func (p *Powers) Clone() Powers {
	c := *p
	c.all = slices.Clone(c.all)
	return c
}

// Quantile returns an upper bound of a quantile, such as 0.5: the end of its bucket, at most twice the value. It is 0
// without values.
func (p *Powers) Quantile(q float64) float64 {
	rank, sum := uint64(math.Ceil(q*float64(p.Count))), uint64(0)
	for i, n := range p.all {
		if sum += n; n > 0 && sum >= rank {
			return math.Ldexp(1, p.first+i)
		}
	}
	return 0
}

// Code passes over the distribution.
func (p *Powers) Code(c *snapshot.Codec) {
	snapshot.Uint(c, &p.Count, &p.Sum, &p.Most)
	snapshot.Int(c, &p.first)
	snapshot.List(c, &p.all, 1, func(n *uint64) { snapshot.Uint(c, n) })
	end := len(p.all) - 1
	impossible := end < 0 && p.first != 0
	if end >= 0 {
		impossible = p.first < minPower || p.first+end > maxPower || p.all[0] == 0 || p.all[end] == 0
	}
	if impossible {
		c.Fail("a distribution has %d buckets from %d", end+1, p.first)
	}
}

// Metric returns the distribution as a histogram, native and with the classic buckets of some exponents. unit is the
// value of Sum that counts as 1.
func (p *Powers) Metric(desc *prometheus.Desc, unit float64, classic []int, labels ...string) prometheus.Metric {
	h := &dto.Histogram{
		SampleCount: new(p.Count), SampleSum: new(float64(p.Sum) / unit),
		Schema: new(int32(0)), ZeroThreshold: new(0.0), ZeroCount: new(uint64(0)),
	}
	for _, e := range classic {
		sum := uint64(0)
		for i, n := range p.all {
			if p.first+i <= e {
				sum += n
			}
		}
		h.Bucket = append(h.Bucket, &dto.Bucket{
			CumulativeCount: &sum, UpperBound: new(math.Ldexp(1, e)),
		})
	}
	if len(p.all) > 0 {
		h.PositiveSpan = []*dto.BucketSpan{{
			Offset: new(int32(p.first)), Length: new(uint32(len(p.all))),
		}}
	}
	before := uint64(0)
	for _, n := range p.all {
		h.PositiveDelta = append(h.PositiveDelta, int64(n-before))
		before = n
	}
	return &histogram{desc, h, prometheus.MakeLabelPairs(desc, labels)}
}

// histogram is a prometheus.Metric with native and classic buckets.
type histogram struct {
	desc   *prometheus.Desc
	value  *dto.Histogram
	labels []*dto.LabelPair
}

// Desc implements prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h *histogram) Write(to *dto.Metric) error {
	to.Histogram, to.Label = h.value, h.labels
	return nil
}
