package process

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gputap/gputap/schema"
)

// variables is all that gputap reads of an environment. docs/security.md refers to it.
var variables = map[string]bool{
	visibleDevices: true,

	"SLURM_JOB_ID": true, "SLURM_ARRAY_JOB_ID": true, "SLURM_ARRAY_TASK_ID": true, "SLURM_STEP_ID": true,
	"SLURM_PROCID": true, "SLURM_NTASKS": true,
	"TORCHELASTIC_RUN_ID": true, "MASTER_ADDR": true, "MASTER_PORT": true,
	"RANK": true, "WORLD_SIZE": true, "LOCAL_WORLD_SIZE": true,
	"PMIX_NAMESPACE": true, "OMPI_MCA_ess_base_jobid": true, "OMPI_COMM_WORLD_RANK": true, "OMPI_COMM_WORLD_SIZE": true,
	"PMI_RANK": true, "PMI_SIZE": true,
}

// ranksBy lists the variables with the rank of a process and the number of ranks. The launcher nearest to the process
// comes first: mpirun and torchrun may run below srun, and then leave its variables as they are.
var ranksBy = [...]struct{ rank, ranks string }{
	{"RANK", "WORLD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMI_RANK", "PMI_SIZE"},
	{slurmRank, "SLURM_NTASKS"},
}

const slurmRank = "SLURM_PROCID"

// launch holds the variables of a process that describe its job.
type launch struct {
	env         map[string]string
	rank, ranks uint32 // as in schema.Process
	by          string // the variable with the rank; "": none
}

// setJob sets the job of a process by its variables, its pod and its container. host names this host in jobs that are
// local to it.
func setJob(p *schema.Process, env map[string]string, host string) {
	l := launch{env: env}
	l.setRank()
	p.Rank, p.Ranks = l.rank, l.ranks
	torchrun := l.torchrun(cmp.Or(p.Container[:min(12, len(p.Container))], host))
	pod := ""
	if p.Pod != "" && (torchrun == "" || !l.spansPods()) {
		pod = "pod:" + p.Pod
	}
	p.Job = cmp.Or(l.slurm(), pod, torchrun, l.mpi())
	if p.Job == "" {
		p.Rank, p.Ranks = 0, 0
	}
}

// text returns a variable if a report can show it: printable ASCII of at most 128 bytes. Otherwise it returns "".
func (l *launch) text(name string) string {
	const longest = 128
	v := l.env[name]
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(v) > longest || strings.ContainsFunc(v, unprintable) {
		return ""
	}
	return v
}

func (l *launch) number(name string) (n uint32, ok bool) {
	v, err := strconv.ParseUint(l.env[name], 10, 31)
	return uint32(v), err == nil
}

// setRank takes the first pair of variables that makes sense. RANK alone is too common a name.
func (l *launch) setRank() {
	for _, by := range ranksBy {
		rank, ok := l.number(by.rank)
		ranks, counted := l.number(by.ranks)
		if !ok || counted && rank >= ranks || !counted && by.rank == "RANK" {
			continue
		}
		l.rank, l.ranks, l.by = rank+1, ranks, by.rank
		return
	}
}

// slurm returns the job as Slurm writes it: 4711, task 3 of an array as 4700_3. Tasks that srun started belong to one
// step, 4711.0: several steps of a job may run at once, each with ranks of its own.
func (l *launch) slurm() string {
	job := l.text("SLURM_JOB_ID")
	if job == "" {
		return ""
	}
	if array, task := l.text("SLURM_ARRAY_JOB_ID"), l.text("SLURM_ARRAY_TASK_ID"); array != "" && task != "" {
		job = array + "_" + task
	}
	if _, ordinary := l.number("SLURM_STEP_ID"); ordinary && l.by == slurmRank { // Slurm's own steps have 32 bits
		job += "." + l.text("SLURM_STEP_ID")
	}
	return "slurm:" + job
}

// torchrun returns the name of the rendezvous: the id that the user gave it, else the address of rank 0. A loopback
// address is replaced by a name for the machine.
func (l *launch) torchrun(machine string) string {
	if id := l.text("TORCHELASTIC_RUN_ID"); id != "" && id != "none" {
		return "torchrun:" + id
	}
	address, port := l.text("MASTER_ADDR"), l.text("MASTER_PORT")
	if address == "" || port == "" || l.by != "RANK" {
		return ""
	}
	if isLocal(address) {
		address = machine
	}
	return "torchrun:" + address + ":" + port
}

// spansPods reports whether ranks run in other pods: the job has more ranks than torchrun started here. Without
// torchrun, the address of rank 0 decides.
func (l *launch) spansPods() bool {
	here, known := l.number("LOCAL_WORLD_SIZE")
	switch {
	case l.by != "RANK":
		return false
	case known:
		return here < l.ranks
	}
	return l.ranks > 1 && !isLocal(l.text("MASTER_ADDR"))
}

// isLocal reports whether an address means a different machine on each machine.
func isLocal(address string) bool {
	ip, err := netip.ParseAddr(address)
	return address == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

func (l *launch) mpi() string {
	if id := cmp.Or(l.text("PMIX_NAMESPACE"), l.text("OMPI_MCA_ess_base_jobid")); id != "" {
		return "mpi:" + id
	}
	return ""
}
