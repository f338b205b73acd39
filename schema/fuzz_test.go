package schema_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gputap/gputap/schema"
)

func FuzzDecode(f *testing.F) {
	for _, g := range goldens {
		f.Add(g.bytes())
	}
	f.Add(good())
	f.Fuzz(func(t *testing.T, data []byte) {
		var b schema.Batch
		if err := schema.NewDecoder().Decode(data, &b); err != nil {
			if !errors.Is(err, schema.ErrMalformed) {
				t.Fatalf("error %v does not wrap ErrMalformed", err)
			}
			return
		}
		_ = rowsText(&b) // looks every index up
		expanded := make([]uint64, b.Events)
		for _, c := range columns(&b) {
			c.Expand(expanded)
			for i, v := range expanded {
				if v != c.At(i) {
					t.Fatalf("Expand gives %d, At(%d) %d", v, i, c.At(i))
				}
			}
		}
	})
}

func columns(b *schema.Batch) []*schema.Column {
	return []*schema.Column{
		b.Time(), b.Duration(), b.Thread(), b.Call(), b.GPU(), b.Result(), b.Ptr(), b.Bytes(), b.Aux(), b.Shape(), b.CUDAStream(),
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint16(100), uint8(0))
	f.Add(uint64(2), uint16(1), uint8(64))
	f.Add(uint64(3), uint16(5000), uint8(17))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, spread uint8) {
		r := source{rand.New(rand.NewPCG(seed, 0)), spread % 65}
		roundTripMemory(t, r, int(n))
		roundTripLaunch(t, r, int(n))
		roundTripCopy(t, r, int(n))
	})
}

// source draws numbers of up to bits bits, so that columns of every width come about.
type source struct {
	*rand.Rand
	bits uint8
}

func (r source) number() uint64 {
	if r.bits == 0 {
		return 7
	}
	return r.Uint64() >> (64 - r.bits)
}

func (r source) time() schema.KTime { return schema.KTime(r.number()) }

func decoded(t *testing.T, b *schema.Builder, n int) *schema.Batch {
	t.Helper()
	data := b.Encode(header(1))
	if len(data) > b.Size() {
		t.Fatalf("%d bytes, above Size %d", len(data), b.Size())
	}
	var batch schema.Batch
	if err := schema.NewDecoder().Decode(data, &batch); err != nil {
		t.Fatal(err)
	}
	if batch.Events != n || batch.Kind != b.Kind() {
		t.Fatalf("%d events of %s, want %d of %s", batch.Events, batch.Kind, n, b.Kind())
	}
	return &batch
}

func equal[E comparable](t *testing.T, want []E, at func(int) E) {
	t.Helper()
	for i := range want {
		if got := at(i); got != want[i] {
			t.Fatalf("event %d: %+v, want %+v", i, got, want[i])
		}
	}
}

func roundTripMemory(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindMemory)
	events := make([]schema.Memory, n)
	for i := range events {
		e := &events[i]
		*e = schema.Memory{
			Time: r.time(), Duration: r.number(), Result: uint32(r.number()), Ptr: r.number(), Bytes: r.number(), Aux: r.number(),
			Thread: b.Thread(schema.Thread{Process: b.Process(schema.Process{PID: uint32(r.IntN(9))}), TID: uint32(r.number())}),
			Call:   b.Call(&schema.Calls[r.IntN(16)]), GPU: b.GPU(schema.GPU{Ordinal: uint32(r.IntN(8))}) - uint32(r.IntN(2)),
		}
		b.AddMemory(e)
	}
	equal(t, events, decoded(t, b, n).Memory)
}

func roundTripLaunch(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindLaunch)
	events := make([]schema.Launch, n)
	thread := b.Thread(schema.Thread{Process: b.Process(train)})
	var shapes []schema.LaunchShape
	for i := range events {
		s := schema.LaunchShape{
			Call: b.Call(call("cuLaunchKernel")), Func: b.Func(schema.Func{Handle: r.number()}),
			Grid: [3]uint32{uint32(r.number()), 1, 2}, Block: [3]uint32{3, uint32(r.number()), 4}, SharedBytes: uint32(r.number()),
		}
		e := &events[i]
		*e = schema.Launch{Time: r.time(), Thread: thread, Shape: b.Shape(s), CUDAStream: b.CUDAStream(r.number())}
		if int(e.Shape) == len(shapes) {
			shapes = append(shapes, s)
		}
		b.AddLaunch(e)
	}
	batch := decoded(t, b, n)
	equal(t, events, batch.Launch)
	if !slices.Equal(batch.Shapes, shapes) {
		t.Fatalf("shapes %v, want %v", batch.Shapes, shapes)
	}
}

func roundTripCopy(t *testing.T, r source, n int) {
	b := schema.NewBuilder(schema.KindCopy)
	events := make([]schema.Copy, n)
	thread := b.Thread(schema.Thread{Process: b.Process(idle)})
	for i := range events {
		e := &events[i]
		*e = schema.Copy{
			Time: r.time(), Duration: r.number(), Thread: thread, Call: b.Call(call("cuMemcpyHtoD_v2")), Result: uint32(r.number()),
			Bytes: r.number(), Dst: r.number(), Src: r.number(), CUDAStream: b.CUDAStream(r.number()),
		}
		b.AddCopy(e)
	}
	equal(t, events, decoded(t, b, n).Copy)
}
