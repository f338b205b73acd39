package page

import (
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// addHistogram adds n times a histogram, n being 1 or -1. Classic buckets are the same in all shards of a fold. Native
// ones are dropped unless both histograms have the form that folds give them: one span of powers of two.
func addHistogram(to, more *dto.Histogram, n int64) {
	*to.SampleCount += uint64(n) * more.GetSampleCount()
	*to.SampleSum += float64(n) * more.GetSampleSum()
	for i, b := range more.GetBucket() {
		if i < len(to.Bucket) {
			*to.Bucket[i].CumulativeCount += uint64(n) * b.GetCumulativeCount()
		}
	}
	first, counts, simple := nativeCounts(to)
	from, others, alike := nativeCounts(more)
	if !simple || !alike {
		to.Schema, to.ZeroThreshold, to.ZeroCount = nil, nil, nil
		to.PositiveSpan, to.PositiveDelta, to.NegativeSpan, to.NegativeDelta = nil, nil, nil, nil
		return
	}
	if len(others) == 0 {
		return
	}
	if len(counts) == 0 {
		first = from
	}
	if from < first {
		counts = slices.Insert(counts, 0, make([]int64, first-from)...)
		first = from
	}
	if short := int(from-first) + len(others) - len(counts); short > 0 {
		counts = append(counts, make([]int64, short)...)
	}
	for i, v := range others {
		counts[int(from-first)+i] += n * v
	}
	setNative(to, first, counts)
}

// nativeCounts returns the native buckets of a histogram and the exponent of the first one.
func nativeCounts(h *dto.Histogram) (first int32, counts []int64, simple bool) {
	if h.Schema == nil || h.GetSchema() != 0 || len(h.PositiveSpan) > 1 || len(h.NegativeSpan) > 0 ||
		h.GetZeroCount() > 0 {
		return 0, nil, false
	}
	if len(h.PositiveSpan) == 1 {
		first = h.PositiveSpan[0].GetOffset()
	}
	sum := int64(0)
	for _, delta := range h.PositiveDelta {
		sum += delta
		counts = append(counts, sum)
	}
	return first, counts, true
}

func setNative(h *dto.Histogram, first int32, counts []int64) {
	h.PositiveSpan = []*dto.BucketSpan{{Offset: &first, Length: new(uint32(len(counts)))}}
	h.PositiveDelta = h.PositiveDelta[:0:0]
	before := int64(0)
	for _, n := range counts {
		h.PositiveDelta = append(h.PositiveDelta, n-before)
		before = n
	}
}

// copyHistogram returns a copy that shares no counts with h.
func copyHistogram(h *dto.Histogram) *dto.Histogram {
	c := &dto.Histogram{SampleCount: new(h.GetSampleCount()), SampleSum: new(h.GetSampleSum()), Schema: h.Schema,
		ZeroThreshold: h.ZeroThreshold, ZeroCount: h.ZeroCount}
	for _, b := range h.Bucket {
		c.Bucket = append(c.Bucket, &dto.Bucket{UpperBound: b.UpperBound,
			CumulativeCount: new(b.GetCumulativeCount())})
	}
	if first, counts, simple := nativeCounts(h); simple && len(counts) > 0 {
		setNative(c, first, counts)
	} else if !simple {
		c.Schema, c.ZeroThreshold, c.ZeroCount = nil, nil, nil
	}
	return c
}
