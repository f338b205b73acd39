package fold

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// BenchmarkAnomalies applies the batches of a training job on one host, decoding included, with all rules on: with the
// job, without it, and to the detector alone.
func BenchmarkAnomalies(b *testing.B) {
	for _, bb := range []struct {
		name, job string
		alone     bool
	}{{"detector alone", "", true}, {"no job", "", false}, {"ranks of a job", "slurm:1", false}} {
		b.Run(bb.name, func(b *testing.B) {
			j := &consumertest.Job{Name: bb.job, Ranks: 8, PerHost: 8, Random: rand.New(rand.NewPCG(1, 1)),
				Step: consumertest.Gloo(400, 3, 5*time.Millisecond), Every: 50 * time.Millisecond}
			var messages [][]byte
			for _, m := range j.Messages(b, 9*time.Second) {
				messages = append(messages, m.Data)
			}
			f := newAnomalies(config.DefaultAnomaly(), outputs{})
			apply := f.Apply
			if bb.alone {
				apply = f.Detector.Apply
			}
			decoder, batch, events := schema.NewDecoder(), &schema.Batch{}, 0
			b.ReportAllocs()
			for b.Loop() {
				for _, m := range messages {
					if err := decoder.Decode(m, batch); err != nil {
						b.Fatal(err)
					}
					if err := apply(batch); err != nil {
						b.Fatal(err)
					}
					events += batch.Events
				}
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
