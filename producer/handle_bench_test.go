package producer

import (
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// BenchmarkHandle translates one record again and again, without rings.
func BenchmarkHandle(b *testing.B) {
	launch := bpf.LaunchRecord{Head: head(b, bpf.RecordLaunch, "cuLaunchKernel"), Func: 1 << 20}
	alloc := bpf.MemoryRecord{Head: head(b, bpf.RecordMemory, "cuMemAlloc_v2"), Ptr: 1 << 30, Bytes: 1 << 20,
		Device: -1}
	copied := bpf.CopyRecord{Head: head(b, bpf.RecordCopy, "cuMemcpyHtoD_v2"), Bytes: 1 << 20}
	named := bpf.NameRecord{Head: head(b, bpf.RecordName, "cuModuleGetFunction"), Handle: 1 << 20, NameBytes: 2}
	for _, bench := range []struct {
		name   string
		record []byte
		time   *uint64
		kind   schema.Kind
	}{
		{"launch", record(&launch), &launch.Time, schema.KindLaunch},
		{"alloc", record(&alloc), &alloc.Time, schema.KindMemory},
		{"copy", record(&copied), &copied.Time, schema.KindCopy},
		{"uncached launch", record(&launch), &launch.Time, schema.KindLaunch},
		{"uncached alloc", record(&alloc), &alloc.Time, schema.KindMemory},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := newTestTranslator()
			r.handle(record(&named))
			uncached := bench.name[0] == 'u'
			for i := range b.N {
				if uncached {
					r.known.BeginRound(0)
				}
				*bench.time++
				r.handle(bench.record)
				if i%4096 == 4095 {
					r.batches.open[bench.kind].Reset()
					r.batches.open[bench.kind].generation++
				}
			}
		})
	}
}
