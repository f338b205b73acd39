package producer

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/schema"
)

// someRecord returns a random record: one in so many teaches the table something, the others are translated by it. Few
// handles occur in many records.
func someRecord(t *testing.T, random *rand.Rand, now uint64, seldom int) []byte {
	pid, thread := 1<<30+random.Uint32N(2), random.Uint32N(2)
	of := func(kind uint16, symbol string) bpf.Head {
		h := head(t, kind, symbol)
		h.TGID, h.TID, h.ThreadStart, h.Time = pid, pid+2*thread, 1+random.Uint64N(2),
			now-random.Uint64N(2)*random.Uint64N(400)
		h.CUDAContext = 7 + random.Uint64N(2)
		if random.IntN(50) == 0 {
			h.Capture = 1
		}
		return h
	}
	any := func(n uint64) uint64 { return 1<<20 + 64*random.Uint64N(n) }
	memory := func(symbol string, device int32) []byte {
		return record(&bpf.MemoryRecord{
			Head: of(bpf.RecordMemory, symbol), Ptr: any(3) * random.Uint64N(9), Bytes: any(9), Aux: random.Uint64N(2),
			Duration: random.Uint64N(100), CUDAStream: any(2), Device: device,
			Result: random.Uint32N(8) / 7,
		})
	}
	context := func(symbol string) []byte {
		m := bpf.MemoryRecord{Head: of(bpf.RecordMemory, symbol), Ptr: 7 + random.Uint64N(2),
			Device: int32(random.Uint32N(2))}
		return record(&m)
	}
	switch random.IntN(seldom) {
	case 0:
		return record(&bpf.ThreadRecord{Head: of(bpf.RecordThread, "cuMemAlloc_v2"), ProcessStart: 1})
	case 1:
		name := bpf.NameRecord{Head: of(bpf.RecordName, "cuModuleGetFunction"), Handle: any(3), Module: any(2),
			NameBytes: 2}
		name.Name[0] = byte('a' + random.IntN(4))
		return record(&name)
	case 2:
		return memory("cuModuleUnload", bpf.DeviceOfContext)
	case 3:
		return context("cuDevicePrimaryCtxRetain")
	case 4:
		return context("cuCtxCreate_v2")
	case 5:
		return memory("cuStreamCreate", bpf.DeviceOfContext)
	case 6:
		return memory("cuStreamDestroy_v2", bpf.DeviceOfContext)
	case 7:
		d := bpf.DeviceRecord{Head: of(bpf.RecordDevice, "cuDeviceGetUuid_v2"), Device: random.Uint32N(2)}
		d.UUID[0] = byte(random.IntN(3))
		return record(&d)
	case 8:
		m := bpf.MemoryRecord{Head: of(bpf.RecordMemory, "cuMemAllocFromPoolAsync"), Ptr: any(3), Bytes: any(9),
			Pool: any(2), Device: bpf.DeviceOfContext}
		return record(&m)
	case 9:
		return memory("cuMemPoolCreate", int32(random.Uint32N(2)))
	case 10:
		if random.IntN(3) == 0 {
			e := bpf.ThreadRecord{Head: of(bpf.RecordEnd, "cuMemAlloc_v2"), ProcessStart: 1}
			e.Call = uint16(schema.CallExec)
			return record(&e)
		}
	}
	if random.IntN(2) == 0 {
		return memory([]string{"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync"}[random.IntN(3)],
			[]int32{bpf.DeviceOfContext, bpf.DeviceNone, 1}[random.IntN(3)])
	}
	l := bpf.LaunchRecord{Head: of(bpf.RecordLaunch, "cuLaunchKernel"), Func: any(3), CUDAStream: any(2),
		SharedBytes: random.Uint32N(2)}
	l.Grid[0], l.Block[0] = 1+random.Uint32N(2), 32
	return record(&l)
}

// TestCachedTranslationIsTheSame: with and without the cache, records yield the same batches.
func TestCachedTranslationIsTheSame(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		cached, uncached := newTestTranslator(), newTestTranslator()
		cached.batches.limits.maxBytes, uncached.batches.limits.maxBytes = 8<<10, 8<<10 // every 512 events
		for now := range uint64(10_000) {
			raw := someRecord(t, random, 1000+now, []int{100, 2000}[seed%2])
			cached.handle(raw)
			uncached.known.BeginRound(0) // makes every cached translation stale
			uncached.handle(raw)
		}
		cached.batches.closeAll()
		uncached.batches.closeAll()
		for kind := range cached.batches.spool.queues {
			got, want := cached.batches.spool.queues[kind], uncached.batches.spool.queues[kind]
			if len(got) != len(want) {
				t.Fatalf("seed %d: %d %s batches, want %d", seed, len(got), schema.Kind(kind), len(want))
			}
			for i := range got {
				if !bytes.Equal(got[i].Data, want[i].Data) {
					t.Fatalf("seed %d: %s batch %d differs from that without the cache", seed, schema.Kind(kind), i)
				}
			}
		}
	}
}

// TestCacheTellsRecordsApart changes each field of a record in turn: the cache yields the event that the translator
// yields without it.
func TestCacheTellsRecordsApart(t *testing.T) {
	memory := bpf.MemoryRecord{Head: head(t, bpf.RecordMemory, "cuMemAllocAsync"), Ptr: 64, Bytes: 64, Duration: 9,
		Device: bpf.DeviceOfContext}
	launch := bpf.LaunchRecord{Head: head(t, bpf.RecordLaunch, "cuLaunchKernel"), Func: 64}
	for kind, numbers := range map[schema.Kind]int{
		schema.KindMemory: len(numbersIn(reflect.ValueOf(&memory).Elem())),
		schema.KindLaunch: len(numbersIn(reflect.ValueOf(&launch).Elem())),
	} {
		for i := range numbers {
			m, l := memory, launch
			first, changed := record(&m), reflect.ValueOf(&m).Elem()
			if kind == schema.KindLaunch {
				first, changed = record(&l), reflect.ValueOf(&l).Elem()
			}
			first = bytes.Clone(first)
			number := numbersIn(changed)[i]
			if number.Addr().Interface() == any(&m.Type) || number.Addr().Interface() == any(&l.Type) {
				continue // another type has other fields
			}
			if number.CanInt() {
				number.SetInt(1)
			} else {
				number.SetUint(number.Uint() + 1)
			}
			second := record(&m)
			if kind == schema.KindLaunch {
				second = record(&l)
			}
			var batches [2][]byte
			for n, cache := range []bool{true, false} {
				tr := newTestTranslator()
				for _, raw := range [][]byte{first, first, second} {
					if !cache {
						tr.known.BeginRound(0) // makes every cached translation stale
					}
					tr.handle(raw)
				}
				tr.batches.closeAll()
				for _, e := range tr.batches.spool.queues[kind] {
					batches[n] = append(batches[n], e.Data...)
				}
			}
			if len(batches[0]) == 0 || !bytes.Equal(batches[0], batches[1]) {
				t.Errorf("%s records that differ in number %d: the cache yields another event", kind, i)
			}
		}
	}
}

// numbersIn returns the numbers of a record, also those in its head and in arrays.
func numbersIn(v reflect.Value) (all []reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			all = append(all, numbersIn(v.Field(i))...)
		}
	case reflect.Array:
		for i := range v.Len() {
			all = append(all, numbersIn(v.Index(i))...)
		}
	default:
		if v.CanSet() {
			all = append(all, v)
		}
	}
	return all
}
