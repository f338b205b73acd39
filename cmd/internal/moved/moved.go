package moved

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Hosts tells in which Lane each host of a recording is. One goroutine uses it.
type Hosts struct {
	groups  [][]int
	streams map[int]recording.Stream
	stayed  map[int]*Lane // of the hosts that did not move, by shard
	moved   map[recording.Host]*Lane
}

// Find reads which hosts have moved, unless the streams show that none has.
func Find(streams []recording.Stream, state iter.Seq2[recording.Section, error],
	messages iter.Seq2[recording.Message, error]) (*Hosts, error) {
	h := &Hosts{streams: map[int]recording.Stream{}, stayed: map[int]*Lane{}, moved: map[recording.Host]*Lane{}}
	for _, s := range streams {
		h.streams[s.Shard] = s
	}
	if !mayMove(streams) {
		return h, nil
	}
	shards := map[recording.Host][]int{}
	note := func(host recording.Host, shard int) {
		list, known := shards[host]
		if !known {
			host = recording.Host{Cluster: strings.Clone(host.Cluster), Host: strings.Clone(host.Host)}
		}
		if at, has := slices.BinarySearch(list, shard); !has {
			shards[host] = slices.Insert(list, at, shard)
		}
	}
	for s, err := range state {
		if err != nil {
			return nil, err
		}
		if s.Cluster+s.Host != "" {
			note(recording.HostOf(s.Cluster, s.Host), s.Shard)
		}
	}
	for m, err := range messages {
		if err != nil {
			return nil, err
		}
		note(m.Host(), m.Shard)
	}
	h.take(shards)
	return h, nil
}

// mayMove reports whether the streams may be of several generations. The first message of a later one is recorded, with
// those of an earlier one.
func mayMove(streams []recording.Stream) bool {
	if len(streams) == 0 {
		return true // the block that names them is damaged
	}
	first := slices.MinFunc(streams, func(a, b recording.Stream) int { return a.Shard - b.Shard }).Shard
	return slices.ContainsFunc(streams, func(s recording.Stream) bool { return s.Shard > first && s.After == 0 })
}

// mostGroups bounds how often a file is read. The hosts of a recording change their shards a few times at most.
const mostGroups = 64

// take makes the lanes and groups of hosts that moved.
func (h *Hosts) take(shards map[recording.Host][]int) {
	all, steps, lanes := map[int]bool{}, map[[2]int]bool{}, map[string]*Lane{}
	for _, s := range h.streams {
		all[s.Shard] = true
	}
	for host, list := range shards {
		for i, shard := range list {
			if all[shard] = true; i > 0 {
				steps[[2]int{list[i-1], shard}] = true
			}
		}
		if len(list) < 2 {
			continue
		}
		name := fmt.Sprint(list)
		if lanes[name] == nil {
			lanes[name] = &Lane{Stream: h.streams[list[0]], shards: list}
		}
		h.moved[host] = lanes[name]
	}
	if len(h.moved) == 0 {
		return
	}
	var firsts []int // of each group but the first one
	for _, step := range slices.SortedFunc(maps.Keys(steps), func(a, b [2]int) int { return a[1] - b[1] }) {
		if n := len(firsts); n == 0 || n < mostGroups-1 && firsts[n-1] <= step[0] {
			firsts = append(firsts, step[1])
		}
	}
	h.groups = make([][]int, len(firsts)+1)
	for _, shard := range slices.Sorted(maps.Keys(all)) {
		at, begins := slices.BinarySearch(firsts, shard)
		if begins {
			at++
		}
		h.groups[at] = append(h.groups[at], shard)
	}
}

// Groups returns lists of shards. Read the messages of a list before those of the next one. A nil list is all shards.
func (h *Hosts) Groups() [][]int {
	if len(h.groups) == 0 {
		return [][]int{nil}
	}
	return h.groups
}

// Of returns the lane of a message, and the message with the shard and the sequence that it has in the lane.
func (h *Hosts) Of(m *recording.Message) (*Lane, recording.Message) {
	if len(h.moved) > 0 {
		if l := h.moved[m.Host()]; l != nil {
			return l, l.next(m)
		}
	}
	return h.Shard(m.Shard), *m
}

// OfSection returns the lane that begins with a section, and the section as the lane has it; nil: none does, because a
// shard before it has the host. What belongs to no host belongs to the hosts that stayed.
func (h *Hosts) OfSection(s *recording.Section) (*Lane, recording.Section) {
	l := h.moved[recording.HostOf(s.Cluster, s.Host)]
	switch {
	case s.Cluster+s.Host == "" || l == nil:
		return h.Shard(s.Shard), *s
	case l.shards[0] != s.Shard:
		return nil, *s
	}
	one := *s
	one.Shard, one.Sequence = l.Shard(), max(l.high, s.Sequence)
	l.high = one.Sequence
	return l, one
}

// Inherits tells of which shards the recording has the first message, and not what their hosts published to an earlier
// shard: it has a state of these hosts instead.
func (h *Hosts) Inherits(state iter.Seq2[recording.Section, error]) map[int]bool {
	shards := map[int]bool{}
	for s, err := range state {
		if err != nil || s.Cluster+s.Host == "" || h.streams[s.Shard].After > 0 {
			continue
		}
		if l, _ := h.OfSection(&s); l == h.stayed[s.Shard] && l != nil {
			shards[s.Shard] = true
		}
	}
	return shards
}

// Lanes lists the lanes of these streams, and of the hosts that moved.
func (h *Hosts) Lanes(streams []recording.Stream) (list []*Lane) {
	for _, s := range streams {
		list = append(list, h.Shard(s.Shard))
	}
	known := map[*Lane]bool{}
	for _, l := range h.moved {
		if !known[l] {
			known[l] = true
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, func(a, b *Lane) int { return slices.Compare(a.shards, b.shards) })
	return list
}

// Shard returns the lane of the hosts that stayed in a shard.
func (h *Hosts) Shard(number int) *Lane {
	l := h.stayed[number]
	if l == nil {
		l = &Lane{Stream: h.streams[number], shards: []int{number}}
		l.Stream.Shard = number
		h.stayed[number] = l
	}
	return l
}

// Lane is the messages of the hosts that went through the same shards.
type Lane struct {
	Stream recording.Stream // the first one; only its Shard is set if the recording does not name it

	shards []int
	shard  int    // of the last message
	before uint64 // what is added to the sequences of that shard
	high   uint64 // the highest sequence of the lane
}

// Shard returns the last shard, which the messages of the lane have.
func (l *Lane) Shard() int { return l.shards[len(l.shards)-1] }

// next returns a message of a host that moved as one of the last shard, with a sequence above those before.
func (l *Lane) next(m *recording.Message) recording.Message {
	if m.Shard != l.shard {
		l.shard, l.before = m.Shard, l.high
	}
	one := *m
	one.Shard, one.Sequence = l.Shard(), l.before+m.Sequence
	l.high = max(l.high, one.Sequence)
	if rest, own := strings.CutPrefix(m.Subject, subjectsOf(m.Shard)); own {
		one.Subject = subjectsOf(one.Shard) + rest
	}
	return one
}

// subjectsOf returns what the subjects of a shard begin with.
func subjectsOf(shard int) string { return strings.TrimSuffix(schema.ShardSubjects(shard), ">") }

// Streams returns the streams of a recording of these kinds, none meaning all, with what the file has of them. A shard
// that was added during the recording has no state of its own: its hosts come from the shards before it, and others had
// no events.
func Streams(streams []recording.Stream, kinds []schema.Kind) []recording.Stream {
	if len(kinds) > 0 && !slices.Contains(kinds, schema.KindMemory) {
		return streams
	}
	list := slices.SortedFunc(slices.Values(streams), func(a, b recording.Stream) int { return a.Shard - b.Shard })
	for i := range list {
		one := &list[i]
		if one.State != recording.KnowledgeNone || one.After > 0 || i == 0 {
			continue
		}
		one.State = recording.KnowledgeComplete
		for _, earlier := range list[:i] {
			if earlier.State != recording.KnowledgeComplete && one.State != recording.KnowledgeNone {
				one.State = earlier.State
			}
			if earlier.State == recording.KnowledgePartial && earlier.Since.After(one.Since) {
				one.Since = earlier.Since
			}
		}
	}
	return list
}
