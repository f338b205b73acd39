package naive

import (
	"time"

	"github.com/gputap/gputap/schema"
)

// Top returns what gputap top prints at a time about a fleet whose shards all answer. growth are the bytes by which
// processes grow in an hour, by PID, without those that are not judged yet; firing are the alerts that fire, the newest
// first.
func (l *Log) Top(now time.Time, shards int, growth map[uint32]uint64, firing []Object) Object {
	items, hosts, heard := []any{}, l.only(ofLeak).Hosts(), 0
	for _, h := range hosts {
		if now.Sub(heardOf(h)) <= 30*time.Second {
			heard++
		}
	}
	processes := l.Processes(0)
	for _, last := range l.rows() {
		for _, p := range processes {
			if p := p.(Object); p["cluster"] == last.id.Cluster && p["host"] == last.id.Host &&
				p["pid"] == last.id.PID && p["start"] == last.Wall(last.id.Start) {
				items = append(items, l.topItem(now, last.id, p, growth))
			}
		}
	}
	return Object{"time": now, "shards": shards, "answered": shards, "missing": []int{}, "not_running": []string{},
		"total": len(items), "items": items, "hosts": len(hosts), "heard": heard,
		"firing": append([]Object{}, firing...)}
}

func (l *Log) topItem(now time.Time, id schema.ProcessID, p Object, growth map[uint32]uint64) Object {
	one := Object{"growth_bytes_per_hour": nil, "launches_per_second": nil, "wait_share": nil,
		"copied_bytes": nil, "state": "running"}
	for _, key := range []string{"cluster", "host", "pid", "start", "comm", "uid", "user", "job", "rank", "heard",
		"live_bytes", "live_allocations", "peak_bytes", "unfreed_at_exit_bytes"} {
		one[key] = p[key]
	}
	if rate, judged := growth[id.PID]; judged || p["peak_bytes"] == uint64(0) { // there is nothing to judge
		one["growth_bytes_per_hour"] = rate
	}
	at, known := p["heard"].(time.Time)
	switch {
	case p["ended"] == true:
		one["state"] = "ended"
	case known && now.Sub(at) > 30*time.Second:
		one["state"] = "silent"
	case growth[id.PID] > 0:
		one["state"] = "suspect"
	}
	if p["evidence"] != "complete" {
		one["state"] = one["state"].(string) + "," + p["evidence"].(string)
	}
	busy := 0
	for _, g := range p["gpus"].(Object) {
		if g.(Object)["live_bytes"].(uint64) > 0 {
			busy++
		}
	}
	one["gpus"] = busy
	q, life := l.launchesOf(id), now.Sub(p["start"].(time.Time)).Seconds()
	switch {
	case q.known:
		one["launches_per_second"] = float64(q.all.minute) / 60
	case q.seconds > 0:
		one["launches_per_second"] = float64(q.all.count) / q.seconds
	}
	if q.seconds > 0 {
		life = q.seconds
	}
	if len(l.of(schema.KindCopy, id))+len(l.of(schema.KindSync, id)) == 0 {
		return one
	}
	c, bytes := l.copiesOf(id), uint64(0)
	for _, d := range c.directions {
		bytes += d["bytes"].(uint64)
	}
	if one["copied_bytes"] = bytes; c.waits.calls > 0 && life > 0 {
		one["wait_share"] = float64(c.waits.ns) / 1e9 / life
	}
	return one
}
