package process

import (
	"cmp"
	"time"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Info identifies a process. Every report of a fold embeds it.
type Info struct {
	ID        schema.ProcessID
	Start     time.Time // wall clock
	UID       uint32
	Comm      string
	Exe       string
	Container string // "" outside containers
	User      string // name of UID on its host; "" unknown
	NSPID     uint32 // PID inside its own PID namespace; 0 when that equals ID.PID
	Cgroup    string // path of its control group
	Pod       string // UID of its Kubernetes pod; "" outside pods
	Unit      string // systemd unit; "" without one
	Job       string // job that the process belongs to; "" outside jobs
	Rank      uint32 // 0 if unknown, else 1 + rank within the job
	Ranks     uint32 // number of ranks of the job; 0 if unknown
	Late      bool   // was running before gputap attached: its earlier calls were not seen
}

// NewInfo returns the Info of process p, which is a row of b.Processes.
func NewInfo(b *schema.Batch, p *schema.Process) Info {
	i := Info{ID: b.ID(p), Start: b.Wall(p.Start)}
	i.update(p)
	return i
}

// update overwrites i with what p knows. Fields that are empty in p keep their value.
func (i *Info) update(p *schema.Process) {
	i.UID, i.Comm, i.Late = p.UID, p.Comm, p.Late
	i.Exe = cmp.Or(p.Exe, i.Exe)
	i.Container = cmp.Or(p.Container, i.Container)
	i.User = cmp.Or(p.User, i.User)
	i.NSPID = cmp.Or(p.NSPID, i.NSPID)
	i.Cgroup = cmp.Or(p.Cgroup, i.Cgroup)
	i.Pod = cmp.Or(p.Pod, i.Pod)
	i.Unit = cmp.Or(p.Unit, i.Unit)
	i.Job = cmp.Or(p.Job, i.Job)
	i.Rank = cmp.Or(p.Rank, i.Rank)
	i.Ranks = cmp.Or(p.Ranks, i.Ranks)
}

// Code passes over i without its cluster and host, which the section names.
func (i *Info) Code(c *snapshot.Codec, host snapshot.HostID) {
	if c.Reading() {
		i.ID.Cluster, i.ID.Host = host.Cluster, host.Host
	}
	c.String(&i.ID.BootID)
	snapshot.Uint(c, &i.ID.PID)
	snapshot.Uint(c, &i.ID.Start)
	snapshot.Uint(c, &i.UID)
	c.String(&i.Comm)
	c.Private(schema.PrivatePath, &i.Exe)
	c.Private(schema.PrivateContainer, &i.Container)
	c.Private(schema.PrivateUser, &i.User)
	c.Private(schema.PrivatePath, &i.Cgroup)
	c.Private(schema.PrivatePod, &i.Pod)
	c.Private(schema.PrivateUnit, &i.Unit)
	c.Private(schema.PrivateJob, &i.Job)
	snapshot.Uint(c, &i.NSPID, &i.Rank, &i.Ranks)
	c.Bool(&i.Late)
	c.Time(&i.Start)
}
