package record

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Inspection describes one file. Its JSON keys are a contract: docs/answers.md.
type Inspection struct {
	File     string      `json:"file"`
	Bytes    int64       `json:"bytes"`
	Blocks   int         `json:"blocks"` // that are whole
	Since    *time.Time  `json:"since"`  // when NATS stored the first message; null without messages
	Until    *time.Time  `json:"until"`
	Messages uint64      `json:"messages"`
	Events   uint64      `json:"events"`
	Selected Selected    `json:"selected"`
	Shards   []Shard     `json:"shards"`
	Hosts    []HostName  `json:"hosts"`
	Kinds    []KindCount `json:"kinds"`
	State    State       `json:"state"`
	Damages  []Damage    `json:"damages"`
}

// Selected is the selection of a recording: "" and no kinds are all.
type Selected struct {
	Cluster string   `json:"cluster"`
	Host    string   `json:"host"`
	Job     string   `json:"job"`
	Kinds   []string `json:"kinds"`

	Redacted bool `json:"redacted"` // names are pseudonyms
}

// Shard describes the messages of one shard.
type Shard struct {
	Shard      int        `json:"shard"`
	Stream     string     `json:"stream"`
	Created    time.Time  `json:"created"` // identifies the stream
	After      uint64     `json:"after"`   // the file begins behind this sequence
	First      uint64     `json:"first"`   // sequences; 0 without messages
	Last       uint64     `json:"last"`
	Messages   uint64     `json:"messages"`
	State      string     `json:"state"`       // complete, partial or none
	StateSince *time.Time `json:"state_since"` // of partial state; null: unknown
}

// HostName names a host as its subjects do.
type HostName struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
}

// KindCount counts the messages of one kind and their events.
type KindCount struct {
	Kind     string `json:"kind"`
	Messages uint64 `json:"messages"`
	Events   uint64 `json:"events"`
}

// State is the state before the first message.
type State struct {
	Sections int   `json:"sections"`
	Hosts    int   `json:"hosts"`
	Bytes    int64 `json:"bytes"`
}

// Damage is a part of the file that readers skip.
type Damage struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}

// Inspect reads a file and checks every byte.
func Inspect(path string) (*Inspection, error) {
	in, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r := &Inspection{
		File: path, Bytes: recording.HeadBytes, Shards: []Shard{}, Hosts: []HostName{}, Kinds: []KindCount{},
		Damages: []Damage{}, Selected: Selected{Kinds: []string{}},
	}
	shards, hosts, kinds := map[int]*Shard{}, map[HostName]bool{}, map[string]*KindCount{}
	for b, err := range in.Blocks() {
		if err := r.damage(err); err != nil {
			return nil, err
		}
		if err != nil {
			continue
		}
		r.Blocks++
		r.Bytes += b.Bytes
		r.addStreams(b, shards)
		r.addMessages(b, shards, kinds)
		for _, h := range b.Hosts {
			// Summaries of ranks have a job, such as slurm:77, in the place of the host.
			if !strings.Contains(h.Host, ":") {
				hosts[HostName{h.Cluster, h.Host}] = true
			}
		}
	}
	for s, err := range in.State() {
		if err != nil {
			continue // already found
		}
		r.State.Sections++
		r.State.Bytes += int64(len(s.Data))
		if s.Cluster != "" || s.Host != "" {
			r.State.Hosts++
		}
	}
	for _, s := range shards {
		r.Shards = append(r.Shards, *s)
	}
	for _, k := range kinds {
		r.Kinds = append(r.Kinds, *k)
	}
	slices.SortFunc(r.Shards, func(a, b Shard) int { return cmp.Compare(a.Shard, b.Shard) })
	slices.SortFunc(r.Kinds, func(a, b KindCount) int {
		return cmp.Compare(schema.ParseKind(a.Kind), schema.ParseKind(b.Kind))
	})
	r.Hosts = slices.AppendSeq(r.Hosts, maps.Keys(hosts))
	slices.SortFunc(r.Hosts, func(a, b HostName) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Host, b.Host))
	})
	return r, nil
}

// damage adds a damage and returns any other error.
func (r *Inspection) damage(err error) error {
	d, isDamage := errors.AsType[*recording.Damage](err)
	if !isDamage {
		return err
	}
	r.Damages = append(r.Damages, Damage{d.Offset, d.Bytes, d.Reason})
	r.Bytes += d.Bytes
	return nil
}

func (r *Inspection) addStreams(b *recording.Block, shards map[int]*Shard) {
	if b.Type != recording.TypeStreams {
		return
	}
	r.Selected = Selected{Cluster: b.Selection.Cluster, Host: b.Selection.Host, Job: b.Selection.Job,
		Kinds: []string{}, Redacted: b.Selection.Redacted}
	for _, k := range b.Selection.Kinds {
		r.Selected.Kinds = append(r.Selected.Kinds, k.String())
	}
	for _, s := range b.Streams {
		shard := entry(shards, s.Shard, Shard{Shard: s.Shard})
		shard.Stream, shard.Created, shard.After, shard.State = s.Name, s.Created, s.After, string(s.State)
		if !s.Since.IsZero() {
			shard.StateSince = &s.Since
		}
	}
}

func (r *Inspection) addMessages(b *recording.Block, shards map[int]*Shard, kinds map[string]*KindCount) {
	if b.Type != recording.TypeMessages {
		return
	}
	if r.Since == nil || b.Since.Before(*r.Since) {
		r.Since = &b.Since
	}
	if r.Until == nil || b.Until.After(*r.Until) {
		r.Until = &b.Until
	}
	for _, in := range b.Shards {
		s := entry(shards, in.Shard, Shard{Shard: in.Shard})
		if s.First == 0 {
			s.First = in.First
		}
		s.Last, s.Messages = in.Last, s.Messages+in.Messages
		r.Messages += in.Messages
	}
	for _, in := range b.Kinds {
		k := entry(kinds, in.Kind, KindCount{Kind: in.Kind})
		k.Messages, k.Events = k.Messages+in.Messages, k.Events+in.Events
		r.Events += in.Events
	}
}

// entry returns the entry of a map, which it adds first if it is absent.
func entry[K comparable, V any](all map[K]*V, key K, first V) *V {
	v := all[key]
	if v == nil {
		v = &first
		all[key] = v
	}
	return v
}

const hostsShown = 10

// Write writes the description as text.
func (r *Inspection) Write(w io.Writer) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("%s: %s, %s, %s with %s", r.File, app.Bytes(uint64(r.Bytes)), app.Plural(uint64(r.Blocks), "block", "blocks"),
		app.Plural(r.Messages, "message", "messages"), app.Plural(r.Events, "event", "events"))
	if r.Since != nil {
		line("time      %s to %s", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339))
	}
	line("selected  %s", r.Selected.text())
	line("state     %s of %s, %s", app.Plural(uint64(r.State.Sections), "section", "sections"),
		app.Plural(uint64(r.State.Hosts), "host", "hosts"), app.Bytes(uint64(r.State.Bytes)))
	for i, h := range r.Hosts {
		if i == hostsShown {
			line("host      … %d more", len(r.Hosts)-hostsShown)
			break
		}
		line("host      %s %s", h.Cluster, h.Host)
	}
	line("")
	kinds := app.NewTable("KIND", "MESSAGES", "EVENTS")
	for _, k := range r.Kinds {
		kinds.Row(k.Kind, k.Messages, k.Events)
	}
	kinds.Write(w)
	line("")
	shards := app.NewTable("SHARD", "FIRST", "LAST", "MESSAGES", "STATE", "SINCE")
	for _, s := range r.Shards {
		since := ""
		if s.StateSince != nil {
			since = s.StateSince.Format(time.RFC3339)
		}
		shards.Row(s.Shard, s.First, s.Last, s.Messages, s.State, since)
	}
	shards.Write(w)
	for _, d := range r.Damages {
		line("damaged: %d bytes at offset %d: %s", d.Bytes, d.Offset, d.Reason)
	}
}

func (s *Selected) text() string {
	selection := recording.Selection{Cluster: s.Cluster, Host: s.Host, Job: s.Job, Redacted: s.Redacted}
	for _, k := range s.Kinds {
		selection.Kinds = append(selection.Kinds, schema.ParseKind(k))
	}
	return SelectionText(&selection)
}
