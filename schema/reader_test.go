package schema_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/gputap/gputap/schema"
)

// A Reader over a recorded run: how much memory it asked for.
func ExampleReader() {
	file, err := os.Open("testdata/pytorch.batches.gz")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		panic(err)
	}
	r := schema.NewReader(schema.Recording(unpacked))
	allocations := 0
	for {
		b, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		for i := range b.Events {
			if b.Kind == schema.KindMemory && b.Calls[b.Memory(i).Call].Op == schema.OpAlloc {
				allocations++
			}
		}
	}
	fmt.Println(allocations > 10_000)
	// Output: true
}

// TestReaderContinuesAfterAnError: a message that is no batch is an error of its own, and the next one is read.
func TestReaderContinuesAfterAnError(t *testing.T) {
	good, err := os.ReadFile("testdata/memory.golden")
	if err != nil {
		t.Fatal(err)
	}
	messages := [][]byte{good, []byte("no batch"), good}
	away := errors.New("the source failed")
	r := schema.NewReader(func() ([]byte, error) {
		if len(messages) == 0 {
			return nil, away
		}
		m := messages[0]
		messages = messages[1:]
		return m, nil
	})
	for i, want := range []error{nil, schema.ErrMalformed, nil, away} {
		b, err := r.Read()
		if !errors.Is(err, want) || (want == nil) != (b != nil) {
			t.Errorf("read %d gives %v, %v, want %v", i, b, err, want)
		}
	}
}
