package inspect

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
)

type anomalyProgram struct{}

func (anomalyProgram) run(ctx context.Context, p *app.Process) error {
	return fold.Anomaly.Run(ctx, p, func(io.Writer, []*fold.Anomalies) {})
}

// TestJobsNameTheSlowRank asks gputap-anomaly about two jobs whose hosts lie on several shards.
func TestJobsNameTheSlowRank(t *testing.T) {
	t.Parallel()
	f := newFleet(t, shards)
	f.consume("anomaly", anomalyProgram{})
	for i, slow := range []int{6, -1} {
		j := &consumertest.Job{Name: []string{"slurm:1.0", "slurm:2.0"}[i], Ranks: 8, PerHost: 2,
			Random: rand.New(rand.NewPCG(1, uint64(i))),
			Step:   consumertest.NCCL(10, slow, 170*time.Millisecond, 60*time.Millisecond, 0)}
		for _, m := range j.Messages(t, 40*time.Second) {
			b := consumertest.Decode(t, m.Data)
			f.publish(b.Cluster, b.Host, b.Kind, m.Data)
		}
	}
	f.settled("anomaly")
	var jobs []answer.FleetJob
	bustest.Eventually(t, "all ranks of both jobs are judged", func() bool {
		jobs = list[answer.FleetJob](f, "jobs").Items
		return len(jobs) == 2 && jobs[0].State == "straggler" && jobs[1].State == "running"
	})
	hosts := []string{"slurm:1.0-0", "slurm:1.0-1", "slurm:1.0-2", "slurm:1.0-3"}
	one := jobs[0]
	if one.Job != "slurm:1.0" || one.Ranks != 8 || one.Seen != 8 || !slices.Equal(one.Slow, []uint32{6}) ||
		one.User != "ada" || one.UID != 1000 || !slices.Equal(one.Hosts, hosts) || len(one.Missing) > 0 {
		t.Errorf("the job is %+v", one)
	}
	// Seven ranks wait for 80 ms of a step of 250 ms, and rank 6 for 20 ms. All pause between launches for nearly all
	// of the rest.
	for _, p := range one.Processes {
		want := 80. / 250
		if p.Rank == 6 {
			want = 20. / 250
		}
		if p.PID != 100+p.Rank || p.Host != hosts[p.Rank/2] || p.Comm != "train" || p.Waiting == nil ||
			math.Abs(*p.Waiting-want) > .03 {
			t.Errorf("rank %d is %+v", p.Rank, p)
		}
	}
	if len(one.Processes) != 8 || len(jobs[1].Slow) != 0 {
		t.Errorf("%d ranks; the other job is %+v", len(one.Processes), jobs[1])
	}
	stdout, stderr, err := f.typed("get", "jobs", "--job", "slurm:1*")
	f.check(err)
	if got := strings.Fields(stdout); stderr != "" || !reflect.DeepEqual(got, strings.Fields(`
		JOB RANKS HOSTS USER STATE WAITING SLOW
		slurm:1.0 8/8 4 ada straggler 32 % rank 6 on slurm:1.0-3`)) {
		t.Errorf("get jobs prints\n%s%s", stdout, stderr)
	}
	alerts := list[alert.Alert](f, "alerts", "--job", "slurm:1.0").Items
	if len(alerts) != 1 || alerts[0].Rule != "straggler" || alerts[0].PID != 106 || alerts[0].Host != hosts[3] {
		t.Errorf("the alerts are %+v", alerts)
	}
	if _, stderr, err := f.typed("get", "jobs", "--user", "bob"); err != nil || stderr != "no jobs\n" {
		t.Errorf("without a job: %q, %v", stderr, err)
	}
}
