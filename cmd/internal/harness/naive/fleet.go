package naive

import (
	"maps"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// ofLeak are the kinds that gputap-leak reads.
var ofLeak = []schema.Kind{schema.KindMemory, schema.KindTensor, schema.KindHost}

// FleetHosts returns every host with the sums of its processes that run, as gputap get hosts prints them. It tells what
// gputap-leak reads.
func (l *Log) FleetHosts() []any {
	list, processes := l.only(ofLeak).Hosts(), l.Processes(0)
	for _, h := range list {
		running, live := 0, uint64(0)
		for _, p := range processes {
			if p, h := p.(Object), h.(Object); sameHost(p, h) && p["ended"] == false {
				running++
				live += p["live_bytes"].(uint64)
			}
		}
		h.(Object)["processes"], h.(Object)["live_bytes"] = running, live
	}
	return list
}

func sameHost(a, b Object) bool { return a["cluster"] == b["cluster"] && a["host"] == b["host"] }

// FleetGPUs returns every GPU of a heartbeat or a process, as gputap get gpus prints them. The memory information is
// the newest one of its processes.
func (l *Log) FleetGPUs() []any {
	found, list := map[string]Object{}, []any{}
	add := func(host, gpu Object) Object {
		key := strings.Join([]string{host["cluster"].(string), host["host"].(string), gpu["uuid"].(string)}, "/")
		if found[key] == nil {
			found[key] = union(Object{"minor": nil, "name": "", "bus": "", "cluster": host["cluster"],
				"host": host["host"], "live_bytes": uint64(0), "processes": 0, "memory_info": nil,
				"total_bytes": nil}, gpu)
		}
		return found[key]
	}
	for _, h := range l.Hosts() {
		for _, gpu := range h.(Object)["gpus"].([]any) {
			add(h.(Object), gpu.(Object))
		}
	}
	for _, p := range l.Processes(0) {
		for uuid, use := range p.(Object)["gpus"].(Object) {
			to, use := add(p.(Object), Object{"uuid": uuid}), use.(Object)
			if live := use["live_bytes"].(uint64); live > 0 {
				to["live_bytes"], to["processes"] = to["live_bytes"].(uint64)+live, to["processes"].(int)+1
			}
			if to["memory_info"] == nil || use["memory_info"] != nil &&
				use["memory_info"].(Object)["time"].(time.Time).After(to["memory_info"].(Object)["time"].(time.Time)) {
				to["memory_info"] = use["memory_info"]
			}
		}
	}
	for _, gpu := range found {
		// No program of the tests asks for the size alone.
		if info, ok := gpu["memory_info"].(Object); ok && gpu["uuid"] != "unknown" {
			gpu["total_bytes"] = info["total_bytes"]
		}
		if gpu["uuid"] != "unknown" || gpu["live_bytes"].(uint64) > 0 {
			list = append(list, gpu)
		}
	}
	return list
}

// FleetRows returns one item for each entry of a map of each process, such as its kernels, with the name of the entry
// under a key of its own.
func (l *Log) FleetRows(of, name string) []any {
	list := []any{}
	for _, p := range l.Processes(0) {
		p := p.(Object)
		entries := Object{}
		switch all := p[of].(type) {
		case Object:
			entries = all
		case map[string]Object:
			for word, o := range all {
				entries[word] = o
			}
		}
		for word, entry := range entries {
			one := maps.Clone(entry.(Object))
			one[name] = word
			for _, key := range []string{"cluster", "host", "pid", "start", "comm", "uid", "user"} {
				one[key] = p[key]
			}
			list = append(list, one)
		}
	}
	return list
}
