package process

import (
	"bufio"
	"cmp"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

// environ parses "NAME=value NAME=value".
func environ(text string) map[string]string {
	env := map[string]string{}
	for variable := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	return env
}

func TestJobAndRank(t *testing.T) {
	const (
		pod   = "7c0a4f3e-52d1-4a1c-9f86-d081884c7d65"
		torch = " RANK=9 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 MASTER_ADDR=gpu07 MASTER_PORT=29500 "
		srun  = " SLURM_JOB_ID=4711 SLURM_PROCID=3 SLURM_NTASKS=8 "
		mpi   = " OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=prterun-gpu07-812@1 "
	)
	for _, row := range []struct {
		name, env, pod, container string
		job                       string
		rank, ranks               uint32
	}{
		{name: "no job", env: "PATH=/bin"},
		{name: "a rank without a job", env: "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4"},

		{name: "srun", env: srun, job: "slurm:4711", rank: 4, ranks: 8},
		{name: "step of srun", env: srun + "SLURM_STEP_ID=2", job: "slurm:4711.2", rank: 4, ranks: 8},
		{name: "srun of an interactive job", env: srun + "SLURM_STEP_ID=4294967290", job: "slurm:4711",
			rank: 4, ranks: 8},
		{name: "array", env: srun + "SLURM_ARRAY_JOB_ID=4700 SLURM_ARRAY_TASK_ID=3 SLURM_STEP_ID=0",
			job: "slurm:4700_3.0", rank: 4, ranks: 8},
		{name: "Slurm alone", env: "SLURM_JOB_ID=4711", job: "slurm:4711"},
		{name: "torchrun below srun", env: srun + "SLURM_STEP_ID=0" + torch, job: "slurm:4711", rank: 10, ranks: 16},
		{name: "mpirun below sbatch", env: "SLURM_JOB_ID=4711 SLURM_PROCID=0 SLURM_NTASKS=4" + mpi, job: "slurm:4711",
			rank: 3, ranks: 4},
		{name: "Slurm in a pod", env: srun, pod: pod, job: "slurm:4711", rank: 4, ranks: 8},

		{name: "pod", env: "PATH=/bin", pod: pod, job: "pod:" + pod},
		{name: "torchrun in one pod", env: "RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 TORCHELASTIC_RUN_ID=x", pod: pod,
			job: "pod:" + pod, rank: 2, ranks: 8},
		{name: "torchrun in several pods", env: torch + "TORCHELASTIC_RUN_ID=llama", pod: pod, job: "torchrun:llama",
			rank: 10, ranks: 16},
		{name: "a rank in each pod", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=train-master-0 MASTER_PORT=23456", pod: pod,
			job: "torchrun:train-master-0:23456", rank: 2, ranks: 2},
		{name: "ranks of one pod, without torchrun", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1",
			pod: pod, job: "pod:" + pod, rank: 2, ranks: 2},
		{name: "mpirun in a pod", env: mpi, pod: pod, job: "pod:" + pod, rank: 3, ranks: 4},

		{name: "torchrun with an id", env: torch + "TORCHELASTIC_RUN_ID=llama", job: "torchrun:llama", rank: 10,
			ranks: 16},
		{name: "torchrun without an id", env: torch + "TORCHELASTIC_RUN_ID=none", job: "torchrun:gpu07:29500", rank: 10,
			ranks: 16},
		{name: "env:// without torchrun", env: torch, job: "torchrun:gpu07:29500", rank: 10, ranks: 16},
		{name: "IPv6", env: "RANK=0 WORLD_SIZE=1 MASTER_ADDR=fd00::7 MASTER_PORT=1", job: "torchrun:fd00::7:1", rank: 1,
			ranks: 1},
		{name: "localhost", env: "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500",
			job: "torchrun:this:29500", rank: 1, ranks: 2},
		{name: "loopback", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500",
			job: "torchrun:this:29500", rank: 2, ranks: 2},
		{name: "loopback in a container", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=29500",
			container: "0123456789abcdef", job: "torchrun:0123456789ab:29500", rank: 2, ranks: 2},
		{name: "an address without a rank", env: "MASTER_ADDR=gpu07 MASTER_PORT=29500"},
		{name: "RANK alone", env: "RANK=gold MASTER_ADDR=gpu07 MASTER_PORT=29500"},
		{name: "RANK without a number of ranks", env: "RANK=3 MASTER_ADDR=gpu07 MASTER_PORT=29500"},
		{name: "a rank that is none of the ranks", env: "RANK=8 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1"},

		{name: "Open MPI", env: mpi, job: "mpi:prterun-gpu07-812@1", rank: 3, ranks: 4},
		{name: "Open MPI 3", env: "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess_base_jobid=38",
			job: "mpi:38", rank: 1, ranks: 2},
		{name: "PMI", env: "SLURM_JOB_ID=1 PMI_RANK=5 PMI_SIZE=6", job: "slurm:1", rank: 6, ranks: 6},

		{name: "numbers that are none", env: "SLURM_JOB_ID=1 SLURM_PROCID=-1 SLURM_NTASKS=x", job: "slurm:1"},
		{name: "a huge rank", env: "SLURM_JOB_ID=1 SLURM_PROCID=4294967295", job: "slurm:1"},
		{name: "an unknown number of ranks", env: "SLURM_JOB_ID=1 SLURM_PROCID=3", job: "slurm:1", rank: 4},
		{name: "a name that no report can show", env: "SLURM_JOB_ID=4\x1b[31m PMIX_NAMESPACE=é"},
		{name: "a name that is too long", env: "SLURM_JOB_ID=" + strings.Repeat("4", 129)},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := schema.Process{Pod: row.pod, Container: row.container, Job: "before", Rank: 77, Ranks: 78}
			setJob(&p, environ(row.env), "this")
			if p.Job != row.job || p.Rank != row.rank || p.Ranks != row.ranks {
				t.Errorf("got %q, %d of %d; want %q, %d of %d", p.Job, p.Rank, p.Ranks, row.job, row.rank, row.ranks)
			}
		})
	}
}

// TestExecReadsTheEnvironmentAgain: a program of one job executes one of another job.
func TestExecReadsTheEnvironmentAgain(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; read line; exec env SLURM_JOB_ID=2 RANK=0 WORLD_SIZE=3 cat")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SLURM_JOB_ID=1", "SLURM_PROCID=4"}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	answer := bufio.NewReader(out)
	turn := func() {
		if _, err := answer.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	turn() // sh runs
	pid := uint32(cmd.Process.Pid)
	start := uint64(procfs.StartTicks(procfs.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))) * uint64(procfs.Tick)
	record := func(call schema.CallID) *bpf.ThreadRecord {
		head := bpf.Head{Call: uint16(call), TID: pid, TGID: pid, ThreadStart: start, Time: start + 1}
		return &bpf.ThreadRecord{Head: head, ProcessStart: start}
	}
	expect := func(job string, rank, ranks uint32, p *Process) {
		t.Helper()
		if p.Job != job || p.Rank != rank || p.Ranks != ranks {
			t.Errorf("got %q, %d of %d; want %q, %d of %d", p.Job, p.Rank, p.Ranks, job, rank, ranks)
		}
	}
	table := NewTable(noLibraries{})
	table.NameJobs("this")
	table.LearnThread(record(0))
	first := table.byPID[pid]
	expect("slurm:1", 5, 0, first)
	fmt.Fprintln(in)
	fmt.Fprintln(in)
	turn() // cat runs
	table.LearnEnd(record(schema.CallExec))
	expect("slurm:2", 1, 3, table.byPID[pid])
	expect("slurm:1", 5, 0, first)
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	table.LearnEnd(record(schema.CallExec)) // of a process that is gone
	expect("slurm:2", 1, 3, table.byPID[pid])
}
