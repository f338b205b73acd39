package answer

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/tensor"
)

// memoryRow is a process of the leak fold.
type memoryRow struct {
	leak.Process
	Heard time.Time // when NATS stored the last batch of its host; zero: unknown
}

// memoryRows are the processes with the most live memory first, and of equal ones that with the most unfreed memory.
func memoryRows(t *leak.Tracker, r *consumer.Reader, q *query.Question) (iter.Seq[any], int) {
	rows := []memoryRow{}
	for _, p := range selected(t.Report().Processes, q, func(p *leak.Process) *process.Info { return &p.Info }) {
		rows = append(rows, memoryRow{p, r.Heard(p.ID.Cluster, p.ID.Host)})
	}
	if !q.Detail {
		for i := range rows {
			p := &rows[i]
			p.Calls, p.Threads, p.Holders, p.Pools = nil, nil, nil, nil
			for v := range p.Verdicts {
				p.Verdicts[v].Groups = nil
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b memoryRow) int { return cmp.Compare(b.UnfreedBytes, a.UnfreedBytes) })
	return largest(rows, q.Limit, func(p *memoryRow) uint64 { return p.LiveBytes })
}

func launchInfo(p *launch.Process) *process.Info { return &p.Info }

// launchRows are the processes with the most launches first. Without detail they have only their sums.
func launchRows(h *launch.Histogram, q *query.Question) (iter.Seq[any], int) {
	rows := selected(h.Report(), q, launchInfo)
	if !q.Detail {
		for i := range rows {
			p := &rows[i]
			p.Calls, p.Funcs, p.Graphs, p.Gaps = nil, nil, nil, nil
		}
	}
	return largest(rows, q.Limit, func(p *launch.Process) uint64 { return p.Launches })
}

// copyRows are the processes that copied the most bytes first. Without detail they have no calls and no groups.
func copyRows(m *bandwidth.Meter, q *query.Question) (iter.Seq[any], int) {
	rows := selected(m.Report(), q, func(p *bandwidth.Process) *process.Info { return &p.Info })
	if !q.Detail {
		for i := range rows {
			rows[i].Calls, rows[i].Groups = nil, nil
		}
	}
	return largest(rows, q.Limit, func(p *bandwidth.Process) (n uint64) {
		for i := range p.Copies {
			n += p.Copies[i].Bytes
		}
		return n
	})
}

// maxBlocks is how many blocks of a GPU an answer about one process has.
const maxBlocks = 10

// tensorRows are the processes with the most driver memory of PyTorch first. About one process, they have its largest
// blocks.
func tensorRows(f *tensor.Fold, q *query.Question) (iter.Seq[any], int) {
	largestBlocks := 0
	if q.PID != 0 {
		largestBlocks = maxBlocks
	}
	rows := selected(f.Report(largestBlocks), q, func(p *tensor.Process) *process.Info { return &p.Info })
	return largest(rows, q.Limit, func(p *tensor.Process) (n uint64) {
		for i := range p.GPUs {
			n += p.GPUs[i].Reserved.Bytes
		}
		return n
	})
}

// Processes lists processes with the figures of gputap-leak. With q.Detail it joins those of gputap-launch and
// gputap-bandwidth, if they run. Then each is as gputap run reports it.
func (f *Fleet) Processes(ctx context.Context, q query.Question) (*List[*report.Process], error) {
	list, _, err := f.processes(ctx, q)
	return list, err
}

// processes also asks another question at the same time, if there is one, and returns its answer.
func (f *Fleet) processes(ctx context.Context, q query.Question, other ...asked) (
	list *List[*report.Process], another *query.Answer, err error,
) {
	of := func(fold, what string) asked {
		q := q
		q.What = what
		return asked{fold, q}
	}
	questions := []asked{of("leak", whatProcesses)}
	if q.Detail { // hosts know the functions without a probe that processes obtained
		questions = append(questions, of("launch", whatProcesses), of("bandwidth", whatProcesses),
			of("leak", whatTensors), of("leak", whatHosts))
	}
	own := len(questions)
	answers, shards, err := f.askEach(ctx, append(questions, other...))
	if err != nil {
		return nil, nil, err
	}
	s := report.New(time.Now())
	for i, a := range answers[:own] {
		if err := addRows(s, a, questions[i].What); err != nil {
			return nil, nil, err
		}
	}
	for i, a := range answers[:own] {
		if questions[i].What == whatProcesses {
			markUnknown(s.Processes, shards, a, &questions[i].Question)
		}
	}
	total := answers[0].Total()
	if q.Limit == 0 {
		total = len(s.Processes) // some have launches and no memory
	}
	list = &List[*report.Process]{Time: s.Time, Reach: reachOf(shards, answers...), Total: total, Items: s.Processes}
	return list, answers[len(answers)-1], nil
}

// markUnknown marks the processes about which a fold did not answer: their shard is missing, or the fold left some
// processes out, because of a limit or because it knows them by an earlier name than the filter has. Otherwise a
// fold without the process has seen no call of it.
func markUnknown(processes []*report.Process, t *topology, a *query.Answer, q *query.Question) {
	missing, told := map[int]bool{}, 0
	for _, m := range a.Missing {
		missing[m.Shard] = true
	}
	for _, p := range processes {
		if p.Told(a.Fold) {
			told++
		}
	}
	selects := q.Comm != "" || told < a.Total()
	for _, p := range processes {
		if !p.Told(a.Fold) && (selects || missing[t.Shard(p.Cluster, p.Host)]) {
			p.SetUnknown(a.Fold)
		}
	}
}

// addRows adds what a fold answered about processes. Hosts and tensors come after the processes.
func addRows(s *report.Snapshot, a *query.Answer, what string) error {
	switch {
	case what == whatTensors:
		return addEach(a, s.AddTensors)
	case what == whatHosts:
		return addEach(a, func(row *hostRow) { s.AddHost(&row.HostRow) })
	case a.Fold == "leak":
		return addEach(a, func(row *memoryRow) { s.AddMemory(&row.Process, row.Heard) })
	case a.Fold == "launch":
		return addEach(a, s.AddLaunches)
	default:
		return addEach(a, s.AddCopies)
	}
}

func addEach[T any](a *query.Answer, add func(*T)) error {
	list, err := query.Rows[T](a)
	for i := range list {
		add(&list[i])
	}
	return err
}

// Who names the process of an item.
type Who struct {
	Cluster string    `json:"cluster"`
	Host    string    `json:"host"`
	PID     uint32    `json:"pid"`
	Start   time.Time `json:"start"`
	Comm    string    `json:"comm"`
	UID     uint32    `json:"uid"`
	User    string    `json:"user"`
}

func whoOf(i *process.Info) Who {
	return Who{i.ID.Cluster, i.ID.Host, i.ID.PID, i.Start, i.Comm, i.UID, i.User}
}
