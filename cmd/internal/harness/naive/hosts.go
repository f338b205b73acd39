package naive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gputap/gputap/schema"
)

// hosts are the names of the hosts that published, in order.
func (l *Log) hosts() (list [][2]string) {
	for _, b := range l.batches {
		list = append(list, [2]string{b.Cluster, b.Host})
	}
	slices.SortFunc(list, func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1]))
	})
	return slices.Compact(list)
}

// Hosts returns every host with its last heartbeat, its last event and its losses.
func (l *Log) Hosts() []any {
	list := []any{}
	for _, name := range l.hosts() {
		of := func(h *schema.Header) bool { return h.Cluster == name[0] && h.Host == name[1] }
		one := Object{"cluster": name[0], "host": name[1], "lost": l.lostBy(of), "late_processes": 0,
			"gpus": []any{}, "libraries": []any{}, "linux": "", "producer": "", "last_event": nil,
			"heard": l.heard(name[0], name[1])}
		for _, e := range l.events {
			if at := e.Wall(e.Time); of(&e.Header) {
				if one["last_event"] == nil || one["last_event"].(interface{ String() string }).String() < at.String() {
					one["last_event"] = at
				}
			}
		}
		for i := range l.beats {
			if b := &l.beats[i].Batch; of(&b.Header) {
				l.heartbeat(b, one)
			}
		}
		list = append(list, one)
	}
	return list
}

// heard returns when NATS stored the last batch of a host.
func (l *Log) heard(cluster, host string) any {
	for _, b := range slices.Backward(l.batches) {
		if b.Cluster == cluster && b.Host == host {
			return b.stored
		}
	}
	return nil
}

func (l *Log) heartbeat(b *schema.Batch, to Object) {
	to["linux"], to["producer"] = b.Linux, b.Producer
	gpus, libraries, late := []any{}, []any{}, map[schema.ProcessID]bool{}
	for _, g := range b.GPUs {
		gpus = append(gpus, Object{"uuid": g.UUID, "minor": g.Ordinal, "name": g.Name, "bus": g.Bus})
	}
	for _, o := range b.Libraries {
		libraries = append(libraries, Object{"path": o.Path, "attached": o.Attached, "stepped": o.Stepped,
			"absent": append([]string{}, o.Absent...), "failed": append([]string{}, o.Failed...)})
	}
	for i := range l.beats { // processes that ended are counted too
		earlier := &l.beats[i].Batch
		for _, c := range earlier.Coverage {
			p := &earlier.Processes[c.Process]
			if earlier.Cluster == b.Cluster && earlier.Host == b.Host && earlier.BootID == b.BootID && p.Late {
				late[earlier.ID(p)] = true
			}
		}
	}
	to["gpus"], to["libraries"], to["late_processes"] = gpus, libraries, len(late)
}

// unseen returns what the last heartbeat that names a process says about functions without a probe. A new boot of the
// host ends that.
func (l *Log) unseen(id schema.ProcessID) Object {
	one := Object{"asked": 0, "functions": []string{}, "export_tables": 0}
	for i := range l.beats {
		b := &l.beats[i].Batch
		if b.Cluster == id.Cluster && b.Host == id.Host && b.BootID != id.BootID {
			one = Object{"asked": 0, "functions": []string{}, "export_tables": 0}
		}
		for _, c := range b.Coverage {
			if b.ID(&b.Processes[c.Process]) == id {
				one = Object{"asked": c.Asked, "functions": append([]string{}, c.Outside...),
					"export_tables": c.ExportTables}
			}
		}
	}
	return one
}

// lost returns the losses of all hosts, and the messages that are no batches.
func (l *Log) lost() Object {
	sums := l.lostBy(func(*schema.Header) bool { return true })
	invalid := 0
	for i := range l.messages {
		if !l.messages[i].valid {
			invalid++
		}
	}
	if invalid > 0 {
		sums["invalid_batches"] = invalid
	}
	return sums
}

// lostBy sums the losses of the boots of hosts: the largest counter of each cause, and the holes in the numbers of the
// batches of each kind.
func (l *Log) lostBy(of func(*schema.Header) bool) Object {
	type run struct{ cluster, host, boot string }
	counters, seqs, sums := map[run]map[string]uint64{}, map[run]map[schema.Kind]uint64{}, Object{}
	missing := uint64(0)
	for i := range l.batches {
		b := &l.batches[i]
		if !of(&b.Header) {
			continue
		}
		r := run{b.Cluster, b.Host, b.BootID}
		if counters[r] == nil {
			counters[r], seqs[r] = map[string]uint64{}, map[schema.Kind]uint64{}
		}
		for cause, n := range b.Lost {
			word := schema.Loss(cause).String()
			counters[r][word] = max(counters[r][word], n)
		}
		missing += b.Seq - 1 - seqs[r][b.Kind]
		seqs[r][b.Kind] = b.Seq
	}
	for _, all := range counters {
		for word, n := range all {
			if before, _ := sums[word].(uint64); n > 0 {
				sums[word] = before + n
			}
		}
	}
	if missing > 0 {
		sums["missing_batches"] = missing
	}
	return sums
}
