package answer

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/coverage"
	"github.com/gputap/gputap/consumer/job"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/process"
	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/consumer/tensor"
)

// Words for Question.What. The comment of each names the folds that have such rows.
const (
	whatProcesses   = "processes"   // leak, launch, bandwidth: one row of the fold's report for each process
	whatHosts       = "hosts"       // leak, which includes the coverage fold
	whatKernels     = "kernels"     // launch: one row for each process and CUDA kernel
	whatTensors     = "tensors"     // leak, which includes the tensor fold: one row for each process
	whatAlerts      = "alerts"      // leak, anomaly: newest first
	whatFiring      = "firing"      // leak, anomaly: the alerts that fire, newest first
	whatAllocations = "allocations" // leak: the largest live allocations of the processes
	whatJobs        = "jobs"        // anomaly, which includes the job fold
	whatStatus      = "status"      // every fold: one row for the shard
)

// Part is one shard of the folds that answer together.
type Part struct {
	Reader     *consumer.Reader
	Folds      []consumer.Fold
	Checkpoint time.Time // when the last one was written; zero: the state is not saved
	// Silent returns the alerts about silent hosts of the shard. Nil: nothing watches for them.
	Silent func() []alert.Alert
}

// Take copies the rows that a question asks for, between two batches.
func (p *Part) Take(q *query.Question) (taken query.Taken, err error) {
	p.Reader.Between(func(applied uint64, lastEvent time.Time) {
		taken.Applied, taken.EventTime = applied, lastEvent
		switch q.What {
		case whatStatus:
			taken.Rows, taken.Total = each([]statusRow{statusOf(p, q)}), 1
			return
		case whatAlerts, whatFiring:
			if taken.Rows, taken.Total = p.alertRows(q); taken.Rows != nil {
				return
			}
		}
		for _, f := range p.Folds {
			if taken.Rows, taken.Total = p.rows(f, q); taken.Rows != nil {
				return
			}
		}
		err = fmt.Errorf("%w: %q", query.ErrUnknown, q.What)
	})
	return taken, err
}

// rows returns nil if the fold does not have the rows.
func (p *Part) rows(fold consumer.Fold, q *query.Question) (iter.Seq[any], int) {
	switch f := fold.(type) {
	case *leak.Tracker:
		switch q.What {
		case whatProcesses:
			return memoryRows(f, p.Reader, q)
		case whatAllocations:
			return allocationRows(f, q)
		}
	case *tensor.Fold:
		if q.What == whatTensors {
			return tensorRows(f, q)
		}
	case *coverage.Fold:
		if q.What == whatHosts {
			return cut(hostRows(f, p.tracker(), p.Reader, q), 0)
		}
	case *launch.Histogram:
		switch q.What {
		case whatProcesses:
			return launchRows(f, q)
		case whatKernels:
			return kernelRows(f, q)
		}
	case *bandwidth.Meter:
		if q.What == whatProcesses {
			return copyRows(f, q)
		}
	case *job.Fold:
		if q.What == whatJobs {
			return jobRows(f, p.Reader, q)
		}
	}
	return nil, 0
}

// tracker returns the tracker among the folds, or nil.
func (p *Part) tracker() *leak.Tracker {
	for _, f := range p.Folds {
		if t, ok := f.(*leak.Tracker); ok {
			return t
		}
	}
	return nil
}

// selected keeps the rows whose process the question selects.
func selected[T any](rows []T, q *query.Question, info func(*T) *process.Info) []T {
	return slices.DeleteFunc(rows, func(row T) bool {
		i := info(&row)
		return !q.Process(&query.Subject{Cluster: i.ID.Cluster, Host: i.ID.Host, User: i.User, Comm: i.Comm,
			Job: i.Job, UID: i.UID, PID: i.ID.PID})
	})
}

// largest sorts rows by a measure, the largest first, and keeps the first limit of them; 0 keeps all.
func largest[T any](rows []T, limit int, measure func(*T) uint64) (iter.Seq[any], int) {
	slices.SortStableFunc(rows, func(a, b T) int { return cmp.Compare(measure(&b), measure(&a)) })
	return cut(rows, limit)
}

// cut keeps the first limit rows; 0 keeps all. It also returns how many there were.
func cut[T any](rows []T, limit int) (iter.Seq[any], int) {
	total := len(rows)
	if limit > 0 {
		rows = rows[:min(limit, total)]
	}
	return each(rows), total
}

// each yields pointers to the rows.
func each[T any](rows []T) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range rows {
			if !yield(&rows[i]) {
				return
			}
		}
	}
}
