//go:build bpf

package producer

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/producertest"
	"github.com/gputap/gputap/schema"
)

// TestJobsOfRealProcesses: programs that launchers started, and the children of one of them. With producer.jobs off
// there are no jobs.
func TestJobsOfRealProcesses(t *testing.T) {
	type job struct {
		name        string
		rank, ranks uint32
	}
	programs := []struct {
		scenario string
		env      []string
		want     job
		images   int
		pids     uint64
	}{
		{"leak3", []string{"SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_PROCID=7", "SLURM_NTASKS=8"},
			job{"slurm:4711.0", 8, 8}, 1, 1},
		{"procs4", []string{"TORCHELASTIC_RUN_ID=llama", "RANK=0", "WORLD_SIZE=4"}, job{"torchrun:llama", 1, 4}, 4, 4},
		{"hard-exec", []string{"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=localhost", "MASTER_PORT=29500"},
			job{"torchrun:test:29500", 4, 4}, 2, 1},
		{"launches", []string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=38@1"},
			job{"mpi:38@1", 2, 2}, 1, 1},
		{"copies", []string{"EDITOR=vi"}, job{}, 1, 1},
	}
	for _, on := range []bool{true, false} {
		cfg := config.DefaultProducer()
		cfg.Jobs = on
		messages := watchWith(t, cfg, slog.New(slog.DiscardHandler), func(watching *Producer) {
			pids := uint64(0)
			for _, p := range programs {
				cmd := exec.Command(producertest.Built(t, "workload"), p.scenario, "--steps")
				cmd.Env = append(os.Environ(), p.env...)
				end := start(t, cmd)
				pids += p.pids
				producertest.Eventually(t, "the processes are known", func() bool {
					return watching.metrics.events[schema.OpContextRetain].Load() >= pids
				})
				end()
			}
		})
		got := map[job]int{}
		for _, p := range processesIn(t, messages, schema.KindMemory) {
			got[job{p.Job, p.Rank, p.Ranks}]++
		}
		for _, p := range programs {
			if n := got[p.want]; on && n != p.images {
				t.Errorf("%s: %d images with job %+v, want %d; there are %v", p.scenario, n, p.want, p.images, got)
			}
		}
		if !on && len(got) != 1 {
			t.Errorf("off: %v", got)
		}
	}
}

// TestHeartbeatsOfRanks: while a rank of a job runs, heartbeats do not wait for the interval of the configuration.
func TestHeartbeatsOfRanks(t *testing.T) {
	cfg := config.DefaultProducer()
	cfg.Heartbeat = 24 * time.Hour
	watchWith(t, cfg, slog.New(slog.DiscardHandler), func(watching *Producer) {
		cmd := exec.Command(producertest.Built(t, "workload"), "leak3", "--steps")
		cmd.Env = append(os.Environ(), "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_PROCID=7", "SLURM_NTASKS=8")
		end := start(t, cmd)
		producertest.Eventually(t, "three heartbeats were published", func() bool {
			return watching.metrics.batches[schema.KindHost].Load() >= 3
		})
		end()
	})
}
