package consumertest

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/gputap/gputap/schema"
)

// Step is one input of a fold: a message, or the report that batches of a host were lost.
type Step struct {
	Message []byte
	Lost    uint64 // number of lost batches; 0: Message is set
	From    schema.Header
}

// Steps returns one Step per message.
func Steps(messages ...[]byte) (steps []Step) {
	for _, m := range messages {
		steps = append(steps, Step{Message: m})
	}
	return steps
}

// Recorded returns the recorded PyTorch run of schema/testdata. It works in packages directly below consumer.
func Recorded(tb testing.TB) (steps []Step) {
	tb.Helper()
	file, err := os.Open("../../schema/testdata/pytorch.batches.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	next := schema.Recording(unpacked)
	message, err := next()
	for ; err == nil; message, err = next() {
		steps = append(steps, Step{Message: slices.Clone(message)})
	}
	if !errors.Is(err, io.EOF) {
		tb.Fatal(err)
	}
	return steps
}

// Take applies steps to the fold. A fold without a Lost method does not see lost batches.
func Take(tb testing.TB, fold Saved, steps ...Step) {
	tb.Helper()
	decoder, batch := schema.NewDecoder(), &schema.Batch{}
	for _, s := range steps {
		if s.Lost > 0 {
			if aware, ok := fold.(interface {
				Lost(cluster, host, boot string, batches uint64)
			}); ok {
				aware.Lost(s.From.Cluster, s.From.Host, s.From.BootID, s.Lost)
			}
			continue
		}
		if err := decoder.Decode(s.Message, batch); err != nil {
			tb.Fatal(err)
		}
		if err := fold.Apply(batch); err != nil {
			tb.Fatal(err)
		}
	}
}
