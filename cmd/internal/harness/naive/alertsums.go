package naive

import (
	"fmt"
	"math"

	"github.com/gputap/gputap/schema"
)

// slower is about copies that reach less than usual. All have one size.
func (f *finding) slower(a Object) {
	bytes := f.windows(func(e *event) float64 { return float64(e.Bytes) })
	rates := map[uint64]float64{}
	for w, ns := range f.windows(func(e *event) float64 { return float64(e.Duration) }) {
		rates[w] = bytes[w] / ns
	}
	now, usual := rates[uint64(f.At)/10e9-1], f.usual(rates)
	a["value"], a["baseline"], a["score"] = math.Round(now*1e9), math.Round(usual*1e9), hundredths(now/usual)
	a["evidence"] = f.between(schema.KindCopy, f.From, f.At)
	least := uint64(1)
	for 2*least <= f.events[0].Bytes {
		least *= 2
	}
	a["message"] = []string{bytesText(least), bytesText(2 * least), fmt.Sprint(f.PID), fmt.Sprintf("%.3g", now),
		fmt.Sprintf("%.0f", 100-100*now/usual), fmt.Sprintf("%.3g", usual)}
}

func (f *finding) pageable(a Object) {
	all := f.windows(func(e *event) float64 { return float64(e.Bytes) })
	part := f.windows(func(e *event) float64 {
		if e.hostMem == schema.HostMemPageable {
			return float64(e.Bytes)
		}
		return 0
	})
	w := uint64(f.At)/10e9 - 1
	a["bytes"], a["value"], a["baseline"], a["score"] = uint64(part[w]), part[w], all[w], hundredths(part[w]/all[w])
	a["evidence"] = f.between(schema.KindCopy, f.From, f.At)
	a["message"] = []string{fmt.Sprint(f.PID), bytesText(part[w] / 10), fmt.Sprintf("%.0f", 100*part[w]/all[w])}
}

// loss is about what was lost within the ten seconds before.
func (f *finding) loss(a Object) {
	var lost [schema.NumLosses]uint64
	var last, before schema.Header
	missing, arrived, sum := uint64(0), uint64(0), uint64(0)
	for i := range f.log.batches {
		b := &f.log.batches[i].Header
		if b.Host != f.Host || b.Kind != schema.KindMemory {
			continue
		}
		if b.Last >= f.At-10e9 && b.Last < f.At {
			for cause, n := range b.Lost {
				lost[cause] = n - before.Lost[cause]
			}
			last, missing, arrived = *b, missing+b.Seq-before.Seq-1, arrived+uint64(b.Events)
		}
		before = *b
	}
	numbers := []string{}
	for _, n := range lost {
		if sum += n; n > 0 {
			numbers = append(numbers, fmt.Sprint(n))
		}
	}
	a["value"], a["baseline"], a["score"] = sum, arrived, math.Round(1e4*float64(sum)/float64(arrived))/1e4
	a["evidence"] = evidence(schema.KindMemory, &f.header, last.Seq, last.Seq, last.Seq)
	a["message"] = append(numbers, fmt.Sprint(missing), fmt.Sprint(arrived))
}

// unfreed is about memory that a process left when it ended, after it had freed most.
func (f *finding) unfreed(a Object) {
	live, freed := map[uint64]uint64{}, amount{}
	for i := range f.events {
		switch e := &f.events[i]; e.call.Op {
		case schema.OpAlloc:
			live[e.Ptr] = e.Bytes
		case schema.OpFree:
			freed.add(live[e.Ptr])
			delete(live, e.Ptr)
		}
	}
	left := amount{}
	for _, bytes := range live {
		left.add(bytes)
	}
	end := f.events[len(f.events)-1]
	a["bytes"], a["value"], a["baseline"] = left.bytes, left.bytes, freed.bytes
	a["score"] = float64(left.bytes*100/freed.bytes) / 100
	a["evidence"] = evidence(schema.KindMemory, &end.Header, end.Seq, end.Seq, end.Seq)
	a["message"] = []string{fmt.Sprint(f.PID), bytesText(freed.bytes), fmt.Sprint(freed.allocations),
		bytesText(left.bytes), fmt.Sprint(left.allocations)}
}
